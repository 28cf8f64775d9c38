// SPDX-License-Identifier: Apache-2.0
#include "cwnd_middleware.h"

#include "ns3/boolean.h"
#include "ns3/double.h"
#include "ns3/inet-socket-address.h"
#include "ns3/node.h"
#include "ns3/packet.h"
#include "ns3/simulator.h"
#include "ns3/udp-socket-factory.h"
#include "ns3/uinteger.h"

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(TcpBoundedCubic);
NS_OBJECT_ENSURE_REGISTERED(CwndMiddleware);

namespace
{

const Time ANNOUNCING = MilliSeconds(300); // paper 002, "CWND-Controlling Middleware"
const Time READING = MilliSeconds(500);    // "Proposed Mechanism"
const Time PRESENT = MilliSeconds(1500);   // without an announcement for longer, a terminal has left
const Time IDLE = Seconds(10);             // a connection that sent nothing for so long is no longer under control
constexpr uint32_t LENGTH = 58;            // of an announcement of hosts/src/cwnd, bytes

} // namespace

TypeId
TcpBoundedCubic::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::TcpBoundedCubic").SetParent<TcpCubic>().SetGroupName("Internet").AddConstructor<TcpBoundedCubic>();
    return tid;
}

TcpBoundedCubic::TcpBoundedCubic(const TcpBoundedCubic& other) : TcpCubic(other)
{
}

Ptr<TcpCongestionOps>
TcpBoundedCubic::Fork()
{
    return CopyObject<TcpBoundedCubic>(this);
}

void
TcpBoundedCubic::Init(Ptr<TcpSocketState> tcb)
{
    TcpCubic::Init(tcb);
    m_state = tcb;
}

void
TcpBoundedCubic::PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt)
{
    TcpCubic::PktsAcked(tcb, acked, rtt);
    m_acked += acked;
    uint32_t last = tcb->m_lastRtt.Get().GetMicroSeconds();
    if (last > 0)
    {
        m_smallest = m_smallest == 0 ? last : std::min(m_smallest, last);
    }
}

void
TcpBoundedCubic::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    TcpCubic::IncreaseWindow(tcb, acked);
    if (m_bound != UNBOUNDED)
    {
        uint64_t bytes = static_cast<uint64_t>(m_bound) * tcb->m_segmentSize;
        tcb->m_cWnd = std::min<uint64_t>(tcb->m_cWnd, bytes);
    }
}

void
TcpBoundedCubic::Bound(uint32_t packets)
{
    // Proportional rate reduction (RFC 6937) multiplies by the threshold: raised during it, far too much would go. The
    // next reading tries again.
    bool reducing =
        m_state->m_congState == TcpSocketState::CA_CWR || m_state->m_congState == TcpSocketState::CA_RECOVERY;
    uint64_t bytes = static_cast<uint64_t>(packets) * m_state->m_segmentSize;
    if (packets == m_bound || (packets != UNBOUNDED && reducing && bytes > m_state->m_ssThresh))
    {
        return;
    }
    m_bound = packets;
    if (packets != UNBOUNDED)
    {
        m_state->m_ssThresh = std::min<uint64_t>(bytes, UINT32_MAX);
    }
}

Ptr<TcpSocketState>
TcpBoundedCubic::State() const
{
    return m_state;
}

uint32_t
TcpBoundedCubic::SmallestRtt() const
{
    return m_smallest;
}

uint64_t
TcpBoundedCubic::Acked() const
{
    return m_acked;
}

TypeId
CwndMiddleware::GetTypeId()
{
    static TypeId tid = TypeId("ns3::CwndMiddleware")
                            .SetParent<Application>()
                            .SetGroupName("Applications")
                            .AddConstructor<CwndMiddleware>()
                            .AddAttribute("Bandwidth",
                                          "BW_max: the highest throughput in this environment, Mb/s",
                                          DoubleValue(19),
                                          MakeDoubleAccessor(&CwndMiddleware::m_bandwidth),
                                          MakeDoubleChecker<double>(0))
                            .AddAttribute("Exponent",
                                          "f(n) is n to the power of it",
                                          DoubleValue(0),
                                          MakeDoubleAccessor(&CwndMiddleware::m_exponent),
                                          MakeDoubleChecker<double>(-10, 0))
                            .AddAttribute("Turns",
                                          "Whether a terminal that yields in vain takes turns, and has two segments at "
                                          "least, which the paper has not",
                                          BooleanValue(false),
                                          MakeBooleanAccessor(&CwndMiddleware::m_turns),
                                          MakeBooleanChecker())
                            .AddAttribute("Port",
                                          "UDP port of announcements",
                                          UintegerValue(8641),
                                          MakeUintegerAccessor(&CwndMiddleware::m_port),
                                          MakeUintegerChecker<uint16_t>(1));
    return tid;
}

void
CwndMiddleware::Follow(Ptr<TcpBoundedCubic> connection)
{
    m_connections.push_back({connection});
}

void
CwndMiddleware::StartApplication()
{
    m_socket = Socket::CreateSocket(GetNode(), UdpSocketFactory::GetTypeId());
    m_socket->SetAllowBroadcast(true);
    m_socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), m_port));
    m_socket->SetRecvCallback(MakeCallback(&CwndMiddleware::Hear, this));
    Announce();
    Read();
}

void
CwndMiddleware::StopApplication()
{
    m_announce.Cancel();
    m_read.Cancel();
    for (auto& tracked : m_connections)
    {
        tracked.connection->Bound(TcpBoundedCubic::UNBOUNDED);
    }
    if (m_socket)
    {
        m_socket->Close();
    }
}

void
CwndMiddleware::DoDispose()
{
    m_connections.clear();
    m_socket = nullptr;
    Application::DoDispose();
}

void
CwndMiddleware::Announce()
{
    uint8_t said[LENGTH] = {};
    uint32_t id = GetNode()->GetId();
    bool sends = std::any_of(m_connections.begin(), m_connections.end(), [](const Tracked& t) { return t.sending; });
    for (int i = 0; i < 4; i++)
    {
        said[i] = id >> (8 * i);
    }
    said[4] = sends;
    m_socket->SendTo(Create<Packet>(said, LENGTH), 0, InetSocketAddress(Ipv4Address::GetBroadcast(), m_port));
    m_announce = Simulator::Schedule(ANNOUNCING, &CwndMiddleware::Announce, this);
}

void
CwndMiddleware::Hear(Ptr<Socket> socket)
{
    while (auto packet = socket->Recv())
    {
        uint8_t said[LENGTH] = {};
        packet->CopyData(said, LENGTH);
        uint32_t id = said[0] | said[1] << 8 | said[2] << 16 | static_cast<uint32_t>(said[3]) << 24;
        if (packet->GetSize() == LENGTH && id != GetNode()->GetId())
        {
            m_neighbours[id] = {Simulator::Now(), said[4] != 0};
        }
    }
}

uint32_t
CwndMiddleware::Terminals() const
{
    uint32_t others = std::count_if(m_neighbours.begin(), m_neighbours.end(), [](const auto& neighbour) {
        return neighbour.second.second && Simulator::Now() - neighbour.second.first <= PRESENT;
    });
    bool sends = std::any_of(m_connections.begin(), m_connections.end(), [](const Tracked& t) { return t.sending; });
    return others + sends;
}

void
CwndMiddleware::Look(Tracked& tracked)
{
    auto state = tracked.connection->State();
    uint64_t acked = tracked.connection->Acked();
    bool advanced = acked > tracked.acked;
    tracked.sending = state->m_bytesInFlight > 0 || advanced;
    tracked.acked = acked;
    if (tracked.sending)
    {
        tracked.sent = Simulator::Now();
    }
    else if (Simulator::Now() - tracked.sent >= IDLE)
    {
        tracked.control = {};
        tracked.bound = CWND_NONE;
    }
    uint32_t smallest = tracked.connection->SmallestRtt();
    if (advanced && smallest > 0)
    {
        uint32_t window = std::min(tracked.window, state->GetCwndInSegments());
        tracked.rtt = cwnd_path_rtt(state->m_srtt.Get().GetMicroSeconds(), smallest, window);
        double ratio = cwnd_ratio(tracked.rtt, smallest);
        tracked.bound = cwnd_step(&tracked.control, Simulator::Now().GetNanoSeconds(), ratio, m_turns);
    }
}

void
CwndMiddleware::Read()
{
    for (auto& tracked : m_connections)
    {
        Look(tracked);
    }
    uint32_t sharing = std::count_if(
        m_connections.begin(), m_connections.end(), [](const Tracked& t) { return t.sending && t.bound != CWND_NONE; });
    for (auto& tracked : m_connections)
    {
        tracked.window = TcpBoundedCubic::UNBOUNDED;
        if (tracked.bound == CWND_ONE)
        {
            tracked.window = 1;
        }
        else if (tracked.bound == CWND_IDEAL)
        {
            tracked.window =
                cwnd_ideal_window({m_bandwidth, m_exponent}, Terminals(), sharing, tracked.rtt, m_turns ? 2 : 1);
        }
        tracked.connection->Bound(tracked.window);
    }
    m_read = Simulator::Schedule(READING, &CwndMiddleware::Read, this);
}

} // namespace ns3
