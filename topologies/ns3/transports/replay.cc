// SPDX-License-Identifier: Apache-2.0
// Plays what a Linux kernel told a congestion control (`hosts cc record`) to one of ours; and sends with one of ours over a
// link that loses given packets, beside a count of what was sent. For tests, which call these from Python
// (topologies/tests/test_ns3_transports.py).
#include "reno.h"
#include "tcp_av.h"

#include "ns3/boolean.h"
#include "ns3/error-model.h"
#include "ns3/inet-socket-address.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-address-helper.h"
#include "ns3/net-device-container.h"
#include "ns3/node-container.h"
#include "ns3/object-factory.h"
#include "ns3/point-to-point-helper.h"
#include "ns3/pointer.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/tcp-header.h"
#include "ns3/tcp-socket-base.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <list>
#include <sstream>

namespace
{

/// An event, in the kernel's units: windows and thresholds in packets, times in us.
struct Recorded
{
    int64_t now, sinceSent, rtt, srtt;
    uint64_t sent;
    uint32_t window, threshold, towards, priorWindow, acked, una, next, segment, lost, delivered, marked, mostOut,
        limited, state;
};

struct Replay
{
    ns3::Ptr<ns3::TcpPacketReno> control;
    ns3::Ptr<ns3::TcpSocketState> tcb = ns3::CreateObject<ns3::TcpSocketState>();
};

/// A segment that left a socket, by its headers.
struct Sent
{
    uint64_t bytes{0};
    uint32_t again{0}; ///< segments that began below the highest sequence number
    ns3::SequenceNumber32 highest;

    void
    Count(ns3::Ptr<const ns3::Packet> packet, const ns3::TcpHeader& header, ns3::Ptr<const ns3::TcpSocketBase>)
    {
        if (packet->GetSize() == 0)
        {
            return;
        }
        again += bytes > 0 && header.GetSequenceNumber() < highest;
        bytes += packet->GetSize();
        highest = std::max(highest, header.GetSequenceNumber() + packet->GetSize());
    }
};

/// As the kernel numbers its events.
ns3::TcpSocketState::TcpCAEvent_t
Event(uint32_t number)
{
    constexpr ns3::TcpSocketState::TcpCAEvent_t EVENTS[] = {ns3::TcpSocketState::CA_EVENT_TX_START,
                                                            ns3::TcpSocketState::CA_EVENT_CWND_RESTART,
                                                            ns3::TcpSocketState::CA_EVENT_COMPLETE_CWR,
                                                            ns3::TcpSocketState::CA_EVENT_LOSS};
    return EVENTS[number];
}

} // namespace

extern "C"
{
/// transport: a TypeId, with attributes.
Replay*
replay_new(const char* transport)
{
    ns3::Simulator::Destroy(); // time begins anew
    std::istringstream text(transport);
    ns3::ObjectFactory factory;
    text >> factory;
    return new Replay{factory.Create<ns3::TcpPacketReno>()};
}

void
replay_free(Replay* replay)
{
    delete replay;
}

/// Calls `callback` with `argument` on the state of `event`, whose window, threshold and `towards` are then what the control
/// made of them. Returns the threshold that it answered, packets; 0 where none is asked for.
uint32_t
replay_call(Replay* replay, const char* callback, uint32_t argument, Recorded* event)
{
    using namespace ns3;
    if (auto later = MicroSeconds(event->now) - Simulator::Now(); later.IsStrictlyPositive())
    {
        Simulator::Stop(later);
        Simulator::Run();
    }
    auto& tcb = *replay->tcb;
    auto& control = *replay->control;
    uint64_t threshold = static_cast<uint64_t>(event->threshold) * event->segment;
    tcb.m_segmentSize = event->segment;
    tcb.m_cWnd = event->window * event->segment;
    tcb.m_ssThresh = std::min<uint64_t>(threshold, UINT32_MAX);
    tcb.m_lastAckedSeq = SequenceNumber32(event->una);
    tcb.m_nextTxSequence = SequenceNumber32(event->next);
    tcb.m_srtt = MicroSeconds(event->srtt);
    tcb.m_lastRtt = MicroSeconds(event->rtt);
    tcb.m_bytesInFlight = event->mostOut * event->segment;
    tcb.m_isCwndLimited = event->limited;
    tcb.m_congState = static_cast<TcpSocketState::TcpCongState_t>(event->state);
    control.towards = event->towards;
    control.progress = {
        event->sent, Simulator::Now() - MicroSeconds(event->sinceSent), event->lost, event->delivered, event->marked};
    if (auto av = DynamicCast<TcpAv>(replay->control))
    {
        av->priorWindow = event->priorWindow;
    }
    std::string name = callback;
    uint32_t answer = 0;
    if (name == "init")
    {
        control.Init(replay->tcb);
    }
    else if (name == "pkts_acked")
    {
        control.PktsAcked(replay->tcb, event->acked, tcb.m_srtt);
    }
    else if (name == "cong_avoid")
    {
        control.IncreaseWindow(replay->tcb, event->acked);
    }
    else if (name == "set_state")
    {
        control.CongestionStateSet(replay->tcb, static_cast<TcpSocketState::TcpCongState_t>(argument));
    }
    else if (name == "cwnd_event")
    {
        control.CwndEvent(replay->tcb, Event(argument));
    }
    else
    {
        answer = control.GetSsThresh(replay->tcb, event->mostOut * event->segment) / event->segment;
    }
    event->window = TcpPacketReno::Window(replay->tcb);
    event->threshold = TcpPacketReno::Threshold(replay->tcb);
    event->towards = control.towards;
    return answer;
}

/// Sends `bytes` over 8 Mb/s and 20 ms, on which the packets with these numbers from the sender are lost (the SYN is 0).
/// counts: bytes and segments sent again, by `transport` and by the headers. Returns bytes that arrived.
uint32_t
counted(const char* transport, uint32_t bytes, const uint32_t* lost, size_t losses, uint64_t counts[4])
{
    using namespace ns3;
    Simulator::Destroy();
    std::istringstream text(transport);
    ObjectFactory factory;
    text >> factory;
    auto control = factory.Create<TcpPacketReno>();
    Sent sent;
    uint32_t arrived = 0;
    {
        NodeContainer nodes(2);
        PointToPointHelper link;
        link.SetDeviceAttribute("DataRate", StringValue("8Mbps"));
        link.SetChannelAttribute("Delay", StringValue("10ms"));
        NetDeviceContainer devices = link.Install(nodes);
        InternetStackHelper().Install(nodes);
        auto addresses = Ipv4AddressHelper("10.2.0.0", "255.255.255.0").Assign(devices);
        auto errors = CreateObject<ReceiveListErrorModel>();
        errors->SetList(std::list<uint32_t>(lost, lost + losses));
        devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));

        auto listening = Socket::CreateSocket(nodes.Get(1), TcpSocketFactory::GetTypeId());
        listening->Bind(InetSocketAddress(Ipv4Address::GetAny(), 5001));
        listening->Listen();
        listening->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                     MakeCallback(+[](uint32_t* arrived, Ptr<Socket> accepted, const Address&) {
                                         accepted->SetRecvCallback(
                                             MakeCallback(+[](uint32_t* arrived, Ptr<Socket> socket) {
                                                 while (auto packet = socket->Recv())
                                                 {
                                                     *arrived += packet->GetSize();
                                                 }
                                             }).Bind(arrived));
                                     }).Bind(&arrived));
        auto socket = DynamicCast<TcpSocketBase>(Socket::CreateSocket(nodes.Get(0), TcpSocketFactory::GetTypeId()));
        socket->SetAttribute("SegmentSize", UintegerValue(1000));
        socket->SetAttribute("SndBufSize", UintegerValue(bytes));
        socket->SetCongestionControlAlgorithm(control);
        socket->TraceConnectWithoutContext("Tx", MakeCallback(&Sent::Count, &sent));
        InetSocketAddress peer(addresses.GetAddress(1), 5001);
        Simulator::Schedule(Seconds(0.5), [socket, peer]() { socket->Connect(peer); });
        Simulator::Schedule(Seconds(1), [socket, bytes]() { socket->Send(Create<Packet>(bytes), 0); });
        Simulator::Stop(Seconds(60));
        Simulator::Run();
    }
    counts[0] = control->progress.sent;
    counts[1] = control->progress.lost;
    counts[2] = sent.bytes;
    counts[3] = sent.again;
    Simulator::Destroy();
    return arrived;
}
}
