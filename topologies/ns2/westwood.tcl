# SPDX-License-Identifier: Apache-2.0
# TCP Westwood over ns-2's Reno, and Westwood-NR over its NewReno, which ns-2 does not bring: after a loss the window is
# what the path was estimated to carry in its smallest round trip (Casetti et al., "TCP Westwood: End-to-End Congestion
# Control for Wired/Wireless Networks", Wireless Networks 8, 2002, sections 2.1 and 2.2).

namespace eval westwood {
    variable EVERY 0.005; # s between two samples of what is acknowledged
    variable TAU 0.5; # s: cut-off of the filter

    # The estimate after a sample: the low-pass filter of the paper's equation 2, at a fixed interval. Packets/s.
    proc filtered {estimate sample before} {
        variable EVERY
        variable TAU
        expr {((2 * $TAU - $EVERY) * $estimate + $EVERY * ($sample + $before)) / (2 * $TAU + $EVERY)}
    }
}

foreach {name base} {Westwood Reno WestwoodNR Newreno} {
    Class Agent/TCP/$name -superclass Agent/TCP/$base
    Agent/TCP/$name instproc init {args} {
        eval $self next $args
        $self set tcpTick_ 0.001; # the smallest round trip is measured in ticks, of 10 ms otherwise
        $self instvar estimate_ sample_ acked_ least_ cuts_ timeouts_ window_before_
        array set now {estimate 0.0 sample 0.0 acked 0 least 1e9 cuts 0 timeouts 0}
        foreach {name value} [array get now] { set ${name}_ $value }
        set window_before_ 1.0
        [Simulator instance] at [[Simulator instance] now] "$self observe"
    }
    Agent/TCP/$name instproc observe {} {
        $self instvar estimate_ sample_ acked_ least_ cuts_ timeouts_ window_before_
        $self instvar ack_ rtt_ cwnd_ ssthresh_ ncwndcuts_ nrexmit_
        set before $sample_
        set sample_ [expr {(max($ack_, 0) - $acked_) / $westwood::EVERY}]
        set acked_ [expr {max($ack_, 0)}]
        set estimate_ [westwood::filtered $estimate_ $sample_ $before]
        if {$rtt_ > 0} { set least_ [expr {min($least_, $rtt_ * 0.001)}] }
        if {$ncwndcuts_ != $cuts_ && $least_ < 1e9} {
            set ssthresh_ [expr {max(2, int($estimate_ * $least_))}]
            # A timeout leaves the window of 1; three equal acknowledgements, no more than the path carries.
            if {$nrexmit_ == $timeouts_} { set cwnd_ [expr {min($window_before_, $ssthresh_)}] }
        }
        set cuts_ $ncwndcuts_
        set timeouts_ $nrexmit_
        set window_before_ $cwnd_
        [Simulator instance] after $westwood::EVERY "$self observe"
    }
}
