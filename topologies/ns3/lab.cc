// SPDX-License-Identifier: Apache-2.0
#include "lab.h"

#include "option_check.h"

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/data-rate.h"
#include "ns3/drop-tail-queue.h"
#include "ns3/global-value.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-address-helper.h"
#include "ns3/ipv4.h"
#include "ns3/mac48-address.h"
#include "ns3/net-device-container.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"
#include "ns3/uinteger.h"

#include <sstream>

using namespace ns3;

namespace
{

/// Payload of TCP with timestamps (RFC 7323) in an Ethernet frame of 1514 bytes.
constexpr uint32_t SEGMENT = 1448;
/// Linux's net.ipv4.tcp_rmem and tcp_wmem, at most.
constexpr uint32_t BUFFER = 4 << 20;
/// Rate of the wires between hosts and ports: not the bottleneck, and no delay but a frame's own.
const char* const WIRE = "1Gbps";
/// Queue of an Ethernet device in Linux (txqueuelen), packets.
const char* const HOST_QUEUE = "1000p";
/// Smallest interval of counts and packets, s: below it, a run would spend its time on counting.
constexpr double MIN_INTERVAL = 0.001;

} // namespace

void
BeginSimulation(uint64_t seed)
{
    Config::Reset();
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(seed);
    RngSeedManager::ResetNextStreamIndex();
}

void
BeginLab(uint32_t seed)
{
    BeginSimulation(seed);
    GlobalValue::Bind("ChecksumEnabled", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(BUFFER));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(BUFFER));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    // Linux: TCP_DELACK_MIN, TCP_RTO_MIN.
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    // An ARP request without an answer is repeated with the next packet, as on Linux; ns-3 waits for 100 s.
    Config::SetDefault("ns3::ArpCache::DeadTimeout", TimeValue(Seconds(1)));
    Config::SetDefault("ns3::ArpCache::PendingQueueSize", UintegerValue(100));
}

Ptr<SimpleNetDevice>
Plug(Ptr<Node> node, Ptr<SimpleChannel> channel)
{
    auto device = CreateObject<SimpleNetDevice>();
    device->SetAddress(Mac48Address::Allocate());
    device->SetAttribute("DataRate", DataRateValue(DataRate(WIRE)));
    auto queue = CreateObject<DropTailQueue<Packet>>();
    queue->SetMaxSize(QueueSize(HOST_QUEUE));
    device->SetQueue(queue);
    device->SetChannel(channel);
    node->AddDevice(device);
    return device;
}

void
GiveAddresses(Lab& lab, const std::vector<Ptr<NetDevice>>& devices)
{
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(lab.server);
    for (const auto& station : lab.stations)
    {
        stack.Install(station);
    }
    NetDeviceContainer all;
    for (const auto& device : devices)
    {
        all.Add(device);
    }
    Ipv4AddressHelper("10.0.0.0", "255.255.0.0").Assign(all);
}

Ipv4Address
AddressOf(Ptr<Node> host)
{
    return host->GetObject<Ipv4>()->GetAddress(1, 0).GetLocal();
}

namespace
{

/// The line that says what is wrong, of its parts; the first one stays.
template <typename... Parts>
void
Fail(Lab* lab, const Parts&... parts)
{
    if (lab->error.empty())
    {
        std::ostringstream line;
        (line << ... << parts);
        lab->error = line.str();
    }
}

bool
HasAddress(Ptr<Node> host)
{
    auto ip = host ? host->GetObject<Ipv4>() : nullptr;
    return ip && ip->GetNInterfaces() > 1 && ip->GetNAddresses(1);
}

/// Find a station of a lab, from 1; null, with the lab's error set, if it is not there or it or the server has no address.
Ptr<Node>
Station(Lab* lab, uint32_t station)
{
    if (!station || station > lab->stations.size())
    {
        Fail(lab, "there is no station ", station, ": there are 1 to ", lab->stations.size());
        return nullptr;
    }
    auto host = lab->stations[station - 1];
    if (!HasAddress(host) || !HasAddress(lab->server))
    {
        Fail(lab, "the hosts have no addresses: let the scene call GiveAddresses()");
        return nullptr;
    }
    return host;
}

/// Check that traffic can have this interval, or set the lab's error; `what`: the traffic, and its action.
bool
IsInterval(Lab* lab, const char* what, double interval)
{
    if (interval >= MIN_INTERVAL && interval <= MAX_TIME)
    {
        return true;
    }
    Fail(lab, what, " every ", interval, " s: give an interval of 0.001 to 1000000 s");
    return false;
}

/// A transfer that has this connection; null: the lab's error says what is not there.
Ptr<Transfer>
Find(Lab* lab, uint32_t transfer, uint32_t stream)
{
    if (transfer >= lab->transfers.size())
    {
        Fail(lab, "there is no transfer ", transfer, ": ask for what lab_transfer() gave a number");
        return nullptr;
    }
    auto found = lab->transfers[transfer];
    if (stream >= found->GetStreams())
    {
        Fail(lab, "transfer ", transfer, " has no connection ", stream, ": there are ", found->GetStreams());
        return nullptr;
    }
    return found;
}

} // namespace

extern "C"
{
/// Handle of the lab's access point, for ap_call() and the like; 0: it has none.
uint64_t
lab_access_point(Lab* lab)
{
    return lab->accessPoint ? lab->accessPoint->GetHandle() : 0;
}

/// The first thing that went wrong; empty: nothing has. Valid until the next call.
const char*
lab_error(Lab* lab)
{
    if (lab->error.empty() && lab->accessPoint)
    {
        lab->error = lab->accessPoint->GetError();
    }
    return lab->error.c_str();
}

/// TCP between a station and the server; its number, or -1: see lab_error().
int
lab_transfer(Lab* lab,
             uint32_t station,
             bool up,
             double start,
             double stop,
             const char* congestion,
             bool ecn,
             uint32_t streams,
             uint32_t window,
             uint64_t bytes,
             double interval)
{
    auto host = Station(lab, station);
    if (!host || !IsInterval(lab, "a transfer cannot be counted", interval))
    {
        return -1;
    }
    constexpr uint16_t first = 5201;
    constexpr uint32_t most = 64; // connections of one transfer, and ports apart of two
    if (!streams || streams > most || lab->transfers.size() >= 900)
    {
        Fail(lab, "a transfer has 1 to ", most, " streams, and a lab up to 900 transfers");
        return -1;
    }
    if (!(start >= Simulator::Now().GetSeconds()) || !(stop >= start) || stop > MAX_TIME)
    {
        Fail(lab,
             "a transfer from ",
             start,
             " to ",
             stop,
             " s cannot be: it starts from now on, and stops after, up to 1000000 s");
        return -1;
    }
    TransferOptions options;
    options.start = Seconds(start);
    options.stop = Seconds(stop);
    options.congestion = congestion;
    options.ecn = ecn;
    options.streams = streams;
    options.window = window;
    options.bytes = bytes;
    options.interval = Seconds(interval);
    options.port = static_cast<uint16_t>(first + most * lab->transfers.size());
    auto transfer = CreateObject<Transfer>();
    const auto receiver = up ? lab->server : host;
    transfer->Start(up ? host : lab->server, receiver, AddressOf(receiver), options);
    if (!transfer->GetError().empty())
    {
        Fail(lab, transfer->GetError());
        return -1;
    }
    lab->transfers.push_back(transfer);
    return static_cast<int>(lab->transfers.size() - 1);
}

/// Octets that arrived of a stream in each interval; `length`: how many there are. None of what is not there, which
/// lab_error() names.
const uint64_t*
lab_arrived(Lab* lab, uint32_t transfer, uint32_t stream, size_t* length)
{
    auto found = Find(lab, transfer, stream);
    *length = 0;
    if (!found)
    {
        return nullptr;
    }
    const auto& arrived = found->GetArrived(stream);
    *length = arrived.size();
    return arrived.data();
}

/// Time at which all of a stream's octets had arrived, s; 0: not yet, or there is no such stream (lab_error()).
double
lab_finished(Lab* lab, uint32_t transfer, uint32_t stream)
{
    auto found = Find(lab, transfer, stream);
    return found ? found->GetFinished(stream).GetSeconds() : 0;
}

/// A probe of the round trip from `start` on; its number, or -1.
int
lab_probe(Lab* lab, uint32_t station, double start, double interval)
{
    auto host = Station(lab, station);
    if (!host || !IsInterval(lab, "a probe cannot be sent", interval))
    {
        return -1;
    }
    if (!(start >= Simulator::Now().GetSeconds()) || start > MAX_TIME)
    {
        Fail(lab, "a probe from ", start, " s cannot be: it starts from now on, up to 1000000 s");
        return -1;
    }
    constexpr uint16_t first = 8620;
    auto probe = CreateObject<RoundTripProbe>();
    const auto port = static_cast<uint16_t>(first + lab->probes.size());
    probe->Start(host, lab->server, AddressOf(lab->server), port, Seconds(start), Seconds(interval));
    lab->probes.push_back(probe);
    return static_cast<int>(lab->probes.size() - 1);
}

/// Four numbers (s) for each probe that was answered: when it was sent, its round trip, up, down. `sent`: all of them.
/// None of what is not there, which lab_error() names.
const double*
lab_answers(Lab* lab, uint32_t probe, size_t* answered, uint32_t* sent)
{
    static_assert(sizeof(RoundTripProbe::Answer) == 4 * sizeof(double));
    *answered = *sent = 0;
    if (probe >= lab->probes.size())
    {
        Fail(lab, "there is no probe ", probe, ": ask for what lab_probe() gave a number");
        return nullptr;
    }
    const auto& answers = lab->probes[probe]->GetAnswers();
    *answered = answers.size();
    *sent = lab->probes[probe]->GetSent();
    return answers.empty() ? nullptr : &answers.front().sent;
}

/// Lets time pass until then, s; the number of ns-3's events so far.
uint64_t
lab_run(Lab* lab, double until)
{
    if (until < Simulator::Now().GetSeconds())
    {
        Fail(lab, "time cannot go back to ", until, " s: give a later time");
    }
    else if (!(until <= MAX_TIME))
    {
        Fail(lab, "time cannot go to ", until, " s: give one of up to 1000000 s");
    }
    if (*lab_error(lab))
    {
        return Simulator::GetEventCount();
    }
    Simulator::Stop(Until(Seconds(until)));
    Simulator::Run();
    return Simulator::GetEventCount();
}

/// The end of the lab and of the simulation: nothing of either is to be used any more.
void
lab_end(Lab* lab)
{
    for (auto& transfer : lab->transfers)
    {
        transfer->Dispose();
    }
    for (auto& probe : lab->probes)
    {
        probe->Dispose();
    }
    if (lab->accessPoint)
    {
        lab->accessPoint->Dispose();
    }
    // Before what the nodes' callbacks are bound to.
    Simulator::Destroy();
    delete lab;
}
}
