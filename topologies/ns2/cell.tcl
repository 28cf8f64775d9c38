# SPDX-License-Identifier: Apache-2.0
# A cell of 802.11 in ns-2: stations around an access point, and a server behind its wire.
#
#   ns cell.tcl SAMPLES "cell stations 2 seconds 30 ..." "flow name sta1 station 1 ..." "flow name sta2 station 2 ..."
#
# Each argument after the file for samples is a Tcl list: a command, then names and values. cell.py gives all of them,
# and has their meanings and that of the samples.

source [file join [file dirname [info script]] westwood.tcl]

set CIRCLE 5.0; # m from the access point to each station
set EVERY 0.25; # s between two samples
set HEADER 40; # bytes of TCP and IP that ns-2's sinks count with each packet; it adds none to UDP

proc sample {time quantity value span source} { puts $::samples "$time $quantity $value $span $source" }

# Makes the nodes of a channel: the access point, then the stations on a circle.
proc channel {rate} {
    global ns told
    Mac/802_11 set dataRate_ ${rate}Mb
    Mac/802_11 set basicRate_ [expr {min($rate, $told(basic))}]Mb
    $ns node-config -adhocRouting DumbAgent -llType LL -macType Mac/802_11 -ifqType Queue/DropTail \
        -ifqLen $told(queue) -antType Antenna/OmniAntenna -propType Propagation/TwoRayGround \
        -phyType Phy/WirelessPhy -channel [new Channel/WirelessChannel] -topoInstance $told(ground) \
        -agentTrace OFF -routerTrace OFF -macTrace OFF -movementTrace OFF
    set nodes {}
    for {set number 0} {$number <= $told(stations)} {incr number} {
        set node [$ns node]
        set far [expr {$number ? $::CIRCLE : 0}]
        set angle [expr {2 * acos(-1) * $number / $told(stations)}]
        $node set X_ [expr {50 + $far * cos($angle)}]
        $node set Y_ [expr {50 + $far * sin($angle)}]
        $node set Z_ 0
        $node random-motion 0
        lappend nodes $node
    }
    return $nodes
}

# Makes the cell. With `uplink` stations send on another channel than the access point: each has two nodes.
proc cell {settings} {
    global ns told down up
    array set told $settings
    set ns [new Simulator]
    ns-random $told(seed)
    $ns trace-all [open /dev/null w]; # mobile nodes want a trace
    set told(ground) [new Topography]
    $told(ground) load_flatgrid 100 100
    create-god [expr {($told(stations) + 1) * ($told(uplink) ? 2 : 1)}]
    Mac/802_11 set RTSThreshold_ $told(rts)
    Mac/802_11 set PLCPDataRate_ $told(plcp)e6
    set down [channel $told(data)]
    set up [expr {$told(uplink) ? [channel $told(uplink)] : $down}]
}

# Returns the wire's beginning; its packets arrive at `to` after its delay.
proc wire {to} {
    set wire [new DelayLink]
    $wire set bandwidth_ 1Gb
    $wire set delay_ $::told(delay)
    $wire target $to
    set queue [new Queue/DropTail]; # a link takes packets from a queue only
    $queue set limit_ 100000
    $queue target $wire
    return $queue
}

# Places an agent: its packets enter the air at one node, and those for it arrive at another one.
proc place {agent sends receives server} {
    $::ns attach-agent $receives $agent
    if {$server} {
        $agent target [wire [$sends entry]]
        [$receives set dmux_] install [$agent set agent_port_] [wire $agent]
    } else {
        $agent target [$sends entry]
    }
}

proc flow {settings} {
    global ns told down up
    array set own $settings
    set udp [info exists own(mbps)]
    set source [new Agent/[expr {$udp ? "UDP" : "TCP/$own(agent)"}]]
    set sink [new Agent/[expr {$udp ? "LossMonitor" : $own(sink)}]]
    set server [list [lindex $down 0] [lindex $up 0] 1]
    set station [list [lindex $up $own(station)] [lindex $down $own(station)] 0]
    place $source {*}[expr {$own(up) ? $station : $server}]
    place $sink {*}[expr {$own(up) ? $server : $station}]
    $ns connect $source $sink
    $source set packetSize_ $own(size)
    if {$udp} {
        set traffic [new Application/Traffic/CBR]
        $traffic set packetSize_ $own(size)
        $traffic set rate_ $own(mbps)Mb
        $traffic set random_ 1
    } else {
        $source set window_ $own(window)
        $source set windowInit_ $own(initial)
        if {$own(law) ne "none"} { $ns at 0 "$source select_ca $own(law)" }
        set traffic [new Application/FTP]
        $ns at $::EVERY "window $source $own(name)"
    }
    $traffic attach-agent $source
    set stop [expr {$own(stop) ? $own(stop) : $told(seconds)}]
    if {$own(length)} {
        $source set name_ $own(name)
        $source set begun_ {}
        set packets [expr {($own(length) + $own(size) - 1) / $own(size)}]
        for {set at $own(start)} {$at < $stop} {set at [expr {$at + $own(period)}]} {
            $ns at $at "$source session $packets"
        }
        $ns at $told(seconds) "$source ended unfinished_s"
    } else {
        $ns at $own(start) "$traffic start"
        $ns at $stop "$traffic stop"
    }
    set payload [expr {$udp ? 1.0 : double($own(size)) / ($own(size) + $::HEADER)}]
    $ns at $::EVERY "rate $sink $own(name) $payload"
}

proc rate {sink name payload} {
    global ns EVERY
    sample [expr {[$ns now] - $EVERY / 2}] rate_mbps [expr {[$sink set bytes_] * 8e-6 * $payload / $EVERY}] $EVERY $name
    $sink set bytes_ 0
    $ns after $EVERY "rate $sink $name $payload"
}

proc window {source name} {
    global ns EVERY
    # The congestion window grows on above its bound.
    sample [$ns now] cwnd [expr {min([$source set cwnd_], [$source set window_])}] 0 $name
    $ns after $EVERY "window $source $name"
}

Agent/TCP instproc session {packets} {
    $self instvar begun_
    lappend begun_ [$::ns now]
    $self advanceby $packets
}

# Keeps how long the sessions took that have begun: more than one where one began before another's end.
Agent/TCP instproc ended {quantity} {
    $self instvar begun_ name_
    if {![info exists begun_]} return
    foreach start $begun_ { sample $start $quantity [expr {[$::ns now] - $start}] 0 $name_ }
    set begun_ {}
}

# Called by ns-2 when all that the agent was given is acknowledged.
Agent/TCP instproc done {} { $self ended session_s }

set samples [open [lindex $argv 0] w]
foreach words [lrange $argv 1 end] { [lindex $words 0] [lrange $words 1 end] }
$ns at $told(seconds) {close $samples; exit 0}
$ns run
