// SPDX-License-Identifier: Apache-2.0
#include "cell_flow.h"

#include "option_check.h"

#include "ns3/object-factory.h"
#include "ns3/simulator.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>

namespace ns3
{

namespace
{

constexpr uint32_t ENDLESS = 1 << 20; // bytes that are given to a socket at a time
constexpr double MAX_SESSIONS = 1e6;  // all are planned at the start
constexpr double PAUSE = 1;           // s without a segment, after which a receiver is quick again; Linux: its timeout

} // namespace

CellFlow::CellFlow(
    std::string name_, Ptr<Node> sender_, Ptr<Node> receiver, Ipv4Address to, uint16_t port, Settings& settings) :
    name(std::move(name_)),
    sender(sender_),
    transport(settings.Text("transport", "ns3::TcpBoundedCubic")),
    start(settings.Number("start", 0)),
    send(settings.Number("send", start)),
    stop(settings.Number("stop", 0)),
    m_receiver(receiver),
    m_to(to, port),
    m_ecn(settings.Number("ecn", 0) != 0),
    m_quick(settings.Whole("quick_acks", 0, 0, 1e6)),
    m_length(std::trunc(settings.Number("length", 0, 0, 1e9))),
    m_period(settings.Number("period", 10, 0.001, MAX_TIME)),
    m_first(settings.Number("first", send)),
    m_endless(m_length == 0)
{
    if (auto wrong = WrongCongestionControl(transport); !wrong.empty())
    {
        throw SettingError(wrong);
    }
    if (start < 0 || send < start || send > MAX_TIME || stop > MAX_TIME || (stop != 0 && stop <= start))
    {
        throw SettingError("it starts at 0 to 1000000 s, sends from then on or later, and stops after it started");
    }
    if (!m_endless && m_first < start)
    {
        throw SettingError("its first session would be before it starts: give a later first");
    }
    if (!m_endless && (stop - m_first) / m_period > MAX_SESSIONS)
    {
        throw SettingError("it would have over 1000000 sessions: give a longer period, or an earlier stop");
    }
}

void
CellFlow::Schedule()
{
    Simulator::Schedule(Seconds(start), &CellFlow::Begin, this);
    if (send > start)
    {
        Simulator::Schedule(Seconds(send), &CellFlow::Fill, this);
    }
    // NOLINTNEXTLINE(bugprone-float-loop-counter): results were measured with the times that these sums are.
    for (double at = m_first; !m_endless && at < stop; at += m_period)
    {
        Simulator::Schedule(Seconds(at), &CellFlow::Plan, this, at, static_cast<uint32_t>(m_length));
    }
    if (stop > 0)
    {
        Simulator::Schedule(Seconds(stop), &CellFlow::End, this);
    }
}

void
CellFlow::Begin()
{
    m_listening = Socket::CreateSocket(m_receiver, TcpSocketFactory::GetTypeId());
    auto ecn = m_ecn ? TcpSocketState::On : TcpSocketState::Off;
    DynamicCast<TcpSocketBase>(m_listening)->SetUseEcn(ecn);
    m_listening->Bind(InetSocketAddress(Ipv4Address::GetAny(), m_to.GetPort()));
    m_listening->Listen();
    m_listening->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                   MakeCallback(&CellFlow::Accept, this));
    m_socket = DynamicCast<TcpSocketBase>(Socket::CreateSocket(sender, TcpSocketFactory::GetTypeId()));
    std::istringstream text(transport);
    ObjectFactory factory;
    text >> factory;
    m_control = factory.Create<TcpCongestionOps>();
    m_socket->SetCongestionControlAlgorithm(m_control);
    m_socket->SetUseEcn(ecn);
    bounded = DynamicCast<TcpBoundedCubic>(m_control);
    m_socket->TraceConnectWithoutContext("HighestRxAck", MakeCallback(&CellFlow::Acknowledged, this));
    m_socket->TraceConnectWithoutContext("LastRTT", MakeCallback(&CellFlow::Measured, this));
    m_socket->TraceConnectWithoutContext("CongState", MakeCallback(&CellFlow::Changed, this));
    m_socket->TraceConnectWithoutContext(
        "CongestionWindow", Callback<void, uint32_t, uint32_t>([this](uint32_t, uint32_t now) { m_window = now; }));
    m_socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>([this](Ptr<Socket>, uint32_t) { Fill(); }));
    m_socket->SetConnectCallback(Callback<void, Ptr<Socket>>([this](Ptr<Socket>) { Fill(); }),
                                 MakeNullCallback<void, Ptr<Socket>>());
    m_socket->Bind();
    m_socket->Connect(m_to);
}

// Data that the socket has is still sent. There is no FIN: ns-3's TcpTxBuffer::Update runs over its end when one is
// acknowledged selectively, as it is behind a hole.
void
CellFlow::End()
{
    m_over = true;
}

void
CellFlow::Plan(double at, uint32_t bytes)
{
    m_wanted += bytes;
    sessions.push_back({at, m_wanted});
    Fill();
}

void
CellFlow::Fill()
{
    while (m_socket && !m_over && Simulator::Now() >= Seconds(send))
    {
        uint64_t left = m_endless ? ENDLESS : m_wanted - m_given;
        uint32_t room = std::min<uint64_t>(left, m_socket->GetTxAvailable());
        if (room == 0)
        {
            return;
        }
        int sent = m_socket->Send(Create<Packet>(room), 0);
        if (sent <= 0)
        {
            return;
        }
        m_given += sent;
    }
}

void
CellFlow::Accept(Ptr<Socket> socket, const Address&)
{
    socket->SetRecvCallback(MakeCallback(&CellFlow::Receive, this));
}

// As Linux does (tcp_event_data_recv, tcp_incr_quickack): who begins again must not wait for an acknowledgement that waits.
void
CellFlow::AcknowledgeAtOnce(Ptr<Socket> socket)
{
    constexpr uint32_t delayed = 2;
    if (Simulator::Now() - m_arrived > Seconds(PAUSE))
    {
        m_quickLeft = m_quick;
    }
    m_arrived = Simulator::Now();
    socket->SetAttribute("DelAckCount", UintegerValue(m_quickLeft > 0 ? 1 : delayed));
    m_quickLeft -= m_quickLeft > 0;
}

void
CellFlow::Receive(Ptr<Socket> socket)
{
    if (m_quick > 0)
    {
        AcknowledgeAtOnce(socket);
    }
    while (auto packet = socket->Recv())
    {
        if (packet->GetSize() == 0)
        {
            return;
        }
        m_received += packet->GetSize();
    }
    for (auto& session : sessions)
    {
        if (session.arrived < 0 && m_received >= session.until)
        {
            session.arrived = Simulator::Now().GetSeconds();
        }
    }
}

void
CellFlow::Acknowledged(SequenceNumber32 before, SequenceNumber32 now)
{
    // The first one acknowledges the SYN.
    m_acked += before.GetValue() == 0 ? now - SequenceNumber32(1) : now - before;
    for (auto& session : sessions)
    {
        if (session.finished < 0 && m_acked >= session.until)
        {
            session.finished = Simulator::Now().GetSeconds();
        }
    }
}

void
CellFlow::Measured(Time, Time now)
{
    uint32_t us = now.GetMicroSeconds();
    if (us > 0)
    {
        m_smallest = m_smallest == 0 ? us : std::min(m_smallest, us);
    }
}

void
CellFlow::Changed(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t now)
{
    timeouts += now == TcpSocketState::CA_LOSS;
    recoveries += now == TcpSocketState::CA_RECOVERY;
}

uint64_t
CellFlow::TakeArrived()
{
    uint64_t bytes = m_received - m_taken;
    m_taken = m_received;
    return bytes;
}

bool
CellFlow::Begun() const
{
    return m_socket != nullptr;
}

Ptr<TcpSocketState>
CellFlow::State() const
{
    return bounded ? bounded->State() : nullptr;
}

uint32_t
CellFlow::SmallestRtt() const
{
    return m_smallest;
}

uint32_t
CellFlow::Segment() const
{
    UintegerValue segment;
    m_socket->GetAttribute("SegmentSize", segment);
    return segment.Get();
}

double
CellFlow::Window() const
{
    return static_cast<double>(m_window) / Segment();
}

bool
CellFlow::Opens(uint32_t sequence) const
{
    if (sessions.empty())
    {
        return false;
    }
    const uint64_t octet = sequence - 1; // the SYN has the number 0
    auto last = std::upper_bound(
        sessions.begin(), sessions.end(), octet, [](uint64_t at, const Session& one) { return at < one.until; });
    const uint64_t begins = last == sessions.begin() ? 0 : std::prev(last)->until;
    return last != sessions.end() && octet < begins + uint64_t{2} * Segment();
}

} // namespace ns3
