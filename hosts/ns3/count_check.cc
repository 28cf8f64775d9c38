// SPDX-License-Identifier: Apache-2.0
// Sends with one of these congestion controls over a link that loses given packets, and counts what was sent. For
// tests, which call it from Python (topologies/tests/test_ns3_transports.py).
#include "reno.h"

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

constexpr uint32_t SEGMENT = 1000; // bytes

/// A segment that left a socket, by its headers.
struct Sent
{
    uint64_t bytes{0};
    uint32_t again{0}; ///< segments that began below the highest sequence number
    ns3::SequenceNumber32 highest;
    uint32_t window{0}; ///< the last that was set, packets
    uint32_t largestWindow{0};

    void
    Count(ns3::Ptr<const ns3::Packet> packet, const ns3::TcpHeader& header, ns3::Ptr<const ns3::TcpSocketBase>)
    {
        if (packet->GetSize() == 0)
        {
            return;
        }
        again += bytes > 0 && header.GetSequenceNumber() < highest;
        bytes += packet->GetSize();
        highest = std::max(highest, header.GetSequenceNumber() + static_cast<int32_t>(packet->GetSize()));
        largestWindow = std::max(largestWindow, window);
    }
};

/// Findings of a transfer. Windows in packets.
struct Counts
{
    uint64_t sent, again;         ///< bytes, and segments sent again, by the control
    uint64_t realSent, realAgain; ///< the same, by the headers
    uint64_t largestWindow, smallestThreshold;
};

} // namespace

extern "C"
{
/// Send `bytes` with a control (a TypeId, with attributes) over 8 Mb/s and 20 ms, half of them `pause` s after the others. The
/// packets with these numbers from the sender are lost (the SYN is 0). Return the bytes that arrived.
uint32_t
counted(const char* transport, uint32_t bytes, double pause, const uint32_t* lost, size_t losses, Counts* counts)
{
    using namespace ns3;
    Simulator::Destroy();
    std::istringstream text(transport);
    ObjectFactory factory;
    text >> factory;
    auto control = factory.Create<TcpPacketReno>();
    *counts = {.smallestThreshold = UINT32_MAX};
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
        socket->SetAttribute("SegmentSize", UintegerValue(SEGMENT));
        socket->SetAttribute("SndBufSize", UintegerValue(bytes));
        socket->SetMinRto(MilliSeconds(300));
        socket->SetCongestionControlAlgorithm(control);
        socket->TraceConnectWithoutContext("Tx", MakeCallback(&Sent::Count, &sent));
        InetSocketAddress peer(addresses.GetAddress(1), 5001);
        Simulator::Schedule(Seconds(0.5), [socket, peer]() { socket->Connect(peer); });
        for (double at : {1.0, 1 + pause})
        {
            Simulator::Schedule(Seconds(at), [socket, bytes]() { socket->Send(Create<Packet>(bytes / 2), 0); });
        }
        socket->TraceConnectWithoutContext(
            "CongestionWindow",
            Callback<void, uint32_t, uint32_t>([&sent](uint32_t, uint32_t now) { sent.window = now / SEGMENT; }));
        socket->TraceConnectWithoutContext(
            "SlowStartThreshold", Callback<void, uint32_t, uint32_t>([counts](uint32_t, uint32_t now) {
                counts->smallestThreshold = std::min<uint64_t>(counts->smallestThreshold, now / SEGMENT);
            }));
        Simulator::Stop(Seconds(60));
        Simulator::Run();
    }
    counts->sent = control->progress.sent;
    counts->again = control->progress.lost;
    counts->largestWindow = sent.largestWindow;
    counts->realSent = sent.bytes;
    counts->realAgain = sent.again;
    Simulator::Destroy();
    return arrived;
}
}
