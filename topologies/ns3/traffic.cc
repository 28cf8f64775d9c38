// SPDX-License-Identifier: Apache-2.0
#include "traffic.h"

#include "option_check.h"

#include "ns3/enum.h"
#include "ns3/inet-socket-address.h"
#include "ns3/packet.h"
#include "ns3/simulator.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/tcp-socket-base.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <limits>

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(Transfer);
NS_OBJECT_ENSURE_REGISTERED(RoundTripProbe);

namespace
{

constexpr uint32_t PART = 14480; // octets handed to a socket at once: ten segments, the first window
constexpr int64_t NEVER = -1;    // ns: not there yet

/// A probe on its way. Both hosts have the simulation's clock.
struct Stamps
{
    int64_t sent;
    int64_t reflected;
};

} // namespace

Time
Until(Time then)
{
    return std::max(then - Simulator::Now(), Time(0));
}

TypeId
Transfer::GetTypeId()
{
    static TypeId tid = TypeId("ns3::Transfer").SetParent<Object>().SetGroupName("Network").AddConstructor<Transfer>();
    return tid;
}

void
Transfer::Start(Ptr<Node> sender, Ptr<Node> receiver, Ipv4Address address, const TransferOptions& options)
{
    if (!CanMake(options.congestion, "ns3::TcpCongestionOps"))
    {
        m_error = "there is no congestion control " + options.congestion + " in ns-3: give a TypeId as ns3::TcpCubic";
        return;
    }
    const auto congestion = TypeId::LookupByName(options.congestion);
    m_sender = sender;
    m_receiver = receiver;
    m_address = address;
    m_options = options;
    m_streams.resize(options.streams);
    for (uint32_t stream = 0; stream < options.streams; stream++)
    {
        auto listening = receiver->GetObject<TcpL4Protocol>()->CreateSocket(congestion);
        Configure(listening);
        if (listening->Bind(InetSocketAddress(Ipv4Address::GetAny(), options.port + stream)) < 0)
        {
            m_error = "port " + std::to_string(options.port + stream) + " is in use: give another transfer another";
            return;
        }
        listening->Listen();
        listening->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                     MakeCallback(&Transfer::Accept, this).Bind(stream));
        m_sockets.push_back(listening);
        Simulator::Schedule(Until(options.start), &Transfer::Connect, this, stream);
    }
    Simulator::Schedule(Until(options.stop), &Transfer::Stop, this);
}

void
Transfer::Configure(Ptr<Socket> socket) const
{
    socket->SetAttribute("UseEcn", EnumValue(m_options.ecn ? TcpSocketState::On : TcpSocketState::Off));
    if (m_options.window)
    {
        socket->SetAttribute("SndBufSize", UintegerValue(m_options.window));
        socket->SetAttribute("RcvBufSize", UintegerValue(m_options.window));
    }
}

std::string
Transfer::GetError() const
{
    return m_error;
}

uint32_t
Transfer::GetStreams() const
{
    return m_streams.size();
}

const std::vector<uint64_t>&
Transfer::GetArrived(uint32_t stream) const
{
    return m_streams.at(stream).arrived;
}

Ptr<Socket>
Transfer::GetSocket(uint32_t stream) const
{
    return m_streams.at(stream).sender;
}

Time
Transfer::GetFinished(uint32_t stream) const
{
    return m_streams.at(stream).finished;
}

void
Transfer::Connect(uint32_t stream)
{
    if (m_stopped)
    {
        return;
    }
    auto socket = m_sender->GetObject<TcpL4Protocol>()->CreateSocket(TypeId::LookupByName(m_options.congestion));
    Configure(socket);
    socket->Bind();
    socket->SetSendCallback(MakeCallback(&Transfer::Fill, this).Bind(stream));
    m_streams[stream].sender = socket;
    m_streams[stream].window = PART;
    socket->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&Transfer::SeeWindow, this).Bind(stream));
    // The send callback comes with the connection, too.
    socket->Connect(InetSocketAddress(m_address, m_options.port + stream));
}

void
Transfer::Accept(uint32_t stream, Ptr<Socket> socket, const Address&)
{
    socket->SetRecvCallback(MakeCallback(&Transfer::Read, this).Bind(stream));
    m_sockets.push_back(socket);
}

void
Transfer::Fill(uint32_t stream, Ptr<Socket> socket, uint32_t)
{
    auto& of = m_streams[stream];
    const uint64_t most = m_options.bytes ? m_options.bytes : std::numeric_limits<uint64_t>::max();
    UintegerValue buffer;
    socket->GetAttribute("SndBufSize", buffer);
    // Linux lets the buffer grow to twice the window (tcp_sndbuf_expand): what has not been sent when the transfer stops
    // is no more than that, where ns-3 would keep a whole buffer to send.
    const uint64_t room = m_options.window ? buffer.Get() : std::min<uint64_t>(buffer.Get(), 2ULL * of.window);
    while (!m_stopped && of.sent < most && socket->GetTxAvailable() > 0)
    {
        const uint64_t held = buffer.Get() - socket->GetTxAvailable();
        if (held >= room)
        {
            return;
        }
        const auto size = std::min<uint64_t>({PART, most - of.sent, socket->GetTxAvailable(), room - held});
        const int taken = socket->Send(Create<Packet>(static_cast<uint32_t>(size)));
        if (taken <= 0)
        {
            return;
        }
        of.sent += taken;
    }
    if (of.sent == most)
    {
        socket->Close();
    }
}

void
Transfer::SeeWindow(uint32_t stream, uint32_t, uint32_t now)
{
    m_streams[stream].window = now;
}

void
Transfer::Read(uint32_t stream, Ptr<Socket> socket)
{
    auto& of = m_streams[stream];
    const size_t interval = Simulator::Now().GetNanoSeconds() / m_options.interval.GetNanoSeconds();
    if (of.arrived.size() <= interval)
    {
        of.arrived.resize(interval + 1);
    }
    for (auto packet = socket->Recv(); packet && packet->GetSize(); packet = socket->Recv())
    {
        of.arrived[interval] += packet->GetSize();
        of.total += packet->GetSize();
    }
    if (m_options.bytes && of.total >= m_options.bytes && of.finished.IsZero())
    {
        of.finished = Simulator::Now();
    }
}

void
Transfer::Stop()
{
    m_stopped = true;
    for (auto& stream : m_streams)
    {
        if (stream.sender)
        {
            stream.sender->Close();
        }
    }
}

void
Transfer::DoDispose()
{
    for (auto& stream : m_streams)
    {
        if (stream.sender)
        {
            stream.sender->SetSendCallback(MakeNullCallback<void, Ptr<Socket>, uint32_t>());
        }
    }
    m_streams.clear();
    m_sockets.clear();
    m_sender = m_receiver = nullptr;
    Object::DoDispose();
}

TypeId
RoundTripProbe::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::RoundTripProbe").SetParent<Object>().SetGroupName("Network").AddConstructor<RoundTripProbe>();
    return tid;
}

void
RoundTripProbe::Start(
    Ptr<Node> station, Ptr<Node> server, Ipv4Address address, uint16_t port, Time start, Time interval)
{
    const auto udp = TypeId::LookupByName("ns3::UdpSocketFactory");
    m_server = Socket::CreateSocket(server, udp);
    m_server->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    m_server->SetRecvCallback(MakeCallback(&RoundTripProbe::Reflect, this));
    m_station = Socket::CreateSocket(station, udp);
    m_station->Bind();
    m_station->Connect(InetSocketAddress(address, port));
    m_station->SetRecvCallback(MakeCallback(&RoundTripProbe::Take, this));
    m_interval = interval;
    m_next = Simulator::Schedule(Until(start), &RoundTripProbe::Send, this);
}

void
RoundTripProbe::Send()
{
    const Stamps stamps{Simulator::Now().GetNanoSeconds(), NEVER};
    m_station->Send(Create<Packet>(reinterpret_cast<const uint8_t*>(&stamps), sizeof stamps));
    m_sent++;
    m_next = Simulator::Schedule(m_interval, &RoundTripProbe::Send, this);
}

void
RoundTripProbe::Reflect(Ptr<Socket> socket)
{
    Address from;
    for (auto packet = socket->RecvFrom(from); packet; packet = socket->RecvFrom(from))
    {
        Stamps stamps{};
        packet->CopyData(reinterpret_cast<uint8_t*>(&stamps), sizeof stamps);
        stamps.reflected = Simulator::Now().GetNanoSeconds();
        socket->SendTo(Create<Packet>(reinterpret_cast<const uint8_t*>(&stamps), sizeof stamps), 0, from);
    }
}

void
RoundTripProbe::Take(Ptr<Socket> socket)
{
    for (auto packet = socket->Recv(); packet; packet = socket->Recv())
    {
        Stamps stamps{};
        packet->CopyData(reinterpret_cast<uint8_t*>(&stamps), sizeof stamps);
        const int64_t now = Simulator::Now().GetNanoSeconds();
        m_answers.push_back({stamps.sent / 1e9,
                             (now - stamps.sent) / 1e9,
                             (stamps.reflected - stamps.sent) / 1e9,
                             (now - stamps.reflected) / 1e9});
    }
}

const std::vector<RoundTripProbe::Answer>&
RoundTripProbe::GetAnswers() const
{
    return m_answers;
}

uint32_t
RoundTripProbe::GetSent() const
{
    return m_sent;
}

void
RoundTripProbe::DoDispose()
{
    m_next.Cancel();
    m_station = m_server = nullptr;
    Object::DoDispose();
}

} // namespace ns3
