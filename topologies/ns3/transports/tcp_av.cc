// SPDX-License-Identifier: Apache-2.0
#include "tcp_av.h"

#include "ns3/boolean.h"
#include "ns3/simulator.h"
#include "ns3/uinteger.h"

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(TcpAv);

TypeId
TcpAv::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::TcpAv")
            .SetParent<TcpPacketReno>()
            .SetGroupName("Internet")
            .AddConstructor<TcpAv>()
            .AddAttribute("Target",
                          "kbit/s of payload that are wanted; 0: none, plain Reno",
                          UintegerValue(0),
                          MakeUintegerAccessor(&TcpAv::m_target),
                          MakeUintegerChecker<uint32_t>())
            .AddAttribute("LossLimit",
                          "Above it, per cent smoothed over 8 rounds, the guarantee is given up",
                          UintegerValue(10),
                          MakeUintegerAccessor(&TcpAv::m_lossLimit),
                          MakeUintegerChecker<uint32_t>(0, 100))
            .AddAttribute("TimeoutLimit",
                          "After more timeouts than this without a good round between them it is given up, too",
                          UintegerValue(2),
                          MakeUintegerAccessor(&TcpAv::m_timeoutLimit),
                          MakeUintegerChecker<uint32_t>())
            .AddAttribute("Rest",
                          "Before it tries again",
                          TimeValue(Seconds(5)),
                          MakeTimeAccessor(&TcpAv::m_rest),
                          MakeTimeChecker())
            .AddAttribute("Ceiling",
                          "The window does not exceed the target's either",
                          BooleanValue(false),
                          MakeBooleanAccessor(&TcpAv::m_ceiling),
                          MakeBooleanChecker())
            .AddAttribute("Patience",
                          "The guarantee is given up when losses or marks keep it below the target for so long",
                          TimeValue(MilliSeconds(1500)),
                          MakeTimeAccessor(&TcpAv::m_patience),
                          MakeTimeChecker());
    return tid;
}

Ptr<TcpCongestionOps>
TcpAv::Fork()
{
    return CopyObject<TcpAv>(this);
}

bool
TcpAv::Guarantees() const
{
    return m_target > 0 && m_window > 0 && !m_yielding;
}

// window = gain * target * RTT, rounded up to packets.
void
TcpAv::RenewWindow(Ptr<const TcpSocketState> tcb)
{
    uint64_t rtt = tcb->m_srtt.Get().GetMicroSeconds();
    uint64_t bytes = m_target * rtt / 8000 * m_gain / ONE;
    uint64_t packets = (bytes + tcb->m_segmentSize - 1) / tcb->m_segmentSize;
    m_window = rtt > 0 ? std::clamp<uint64_t>(packets, 2, INFINITE) : 0;
}

void
TcpAv::StartRound(Ptr<const TcpSocketState> tcb)
{
    m_roundEnd = tcb->m_nextTxSequence;
    m_roundStart = Simulator::Now();
    m_lost = progress.lost;
    m_delivered = progress.delivered;
    m_marked = progress.marked;
}

void
TcpAv::GiveWay(Ptr<TcpSocketState> tcb, uint32_t window)
{
    if (!Guarantees())
    {
        return;
    }
    m_yielding = true;
    m_since = Simulator::Now();
    SetThreshold(tcb, std::min(Threshold(tcb), std::max(window / 2, 2U)));
    SetWindow(tcb, std::min(Window(tcb), Threshold(tcb)));
}

void
TcpAv::Init(Ptr<TcpSocketState> tcb)
{
    TcpPacketReno::Init(tcb);
    m_acknowledged = Simulator::Now();
    RenewWindow(tcb);
    StartRound(tcb);
    // A loss may open the window at once, by as much as the target takes: paced, that is no burst.
    tcb->m_pacing = tcb->m_pacing || (m_target > 0 && m_target <= PACED);
    if (Guarantees())
    {
        SetThreshold(tcb, m_window);
    }
}

// A full window that delivered less than the target in a round is opened by a part of what was missing, and the other way
// round. A window below the target's is on its way there, one above it is Reno's.
void
TcpAv::CloseLoop(Ptr<const TcpSocketState> tcb, uint64_t kbit)
{
    if (kbit < m_target && Window(tcb) >= m_window)
    {
        m_gain = std::min(m_gain + (m_target - kbit) * ONE / m_target / GAIN_PART, 2 * ONE);
    }
    else if (kbit >= m_target && Window(tcb) == m_window)
    {
        uint64_t over = std::min<uint64_t>(kbit - m_target, m_target);
        m_gain = std::max(m_gain - over * ONE / m_target / GAIN_PART, ONE / 2);
    }
}

void
TcpAv::PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt)
{
    TcpPacketReno::PktsAcked(tcb, acked, rtt);
    m_acknowledged = Simulator::Now();
    if (m_roundEnd > tcb->m_lastAckedSeq)
    {
        return;
    }
    uint64_t lost = progress.lost - m_lost;
    uint64_t delivered = progress.delivered - m_delivered;
    // RFC 3168: the receiver repeats a mark until it is answered, so a round has one; and a mark is as bad as a loss.
    bool marked = progress.marked != m_marked;
    if (lost + delivered > 0)
    {
        m_loss = (7 * m_loss + std::min(lost + marked, lost + delivered) * ONE / (lost + delivered)) / 8;
    }
    Time start = m_roundStart;
    StartRound(tcb);
    uint64_t took = std::max<int64_t>((Simulator::Now() - start).GetMicroSeconds(), 1);
    uint64_t kbit = delivered * tcb->m_segmentSize * 8000 / took;
    bool judged = tcb->m_isCwndLimited && Guarantees();
    if (judged)
    {
        CloseLoop(tcb, kbit);
    }
    if (!judged || kbit + m_target / TOLERANCE >= m_target)
    {
        m_short = false;
    }
    else if (!m_short && m_reached && (lost > 0 || marked))
    {
        m_short = true;
        m_shortSince = start;
    }
    RenewWindow(tcb);
    bool open = tcb->m_congState == TcpSocketState::CA_OPEN;
    if (open)
    {
        m_timeouts = 0;
    }
    uint64_t limit = m_lossLimit * ONE / 100;
    if (!m_yielding)
    {
        if (m_loss > limit || (m_short && Simulator::Now() - m_shortSince >= m_patience))
        {
            GiveWay(tcb, Window(tcb));
        }
    }
    else if (open && m_loss <= limit / 2 && Simulator::Now() - m_since >= m_rest)
    {
        m_yielding = false;
        m_reached = false;
    }
}

void
TcpAv::CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state)
{
    auto before = tcb->m_congState;
    if (state == TcpSocketState::CA_CWR)
    {
        progress.marked++; // of each answered mark, and a round has one
    }
    // A reduction ends with the window at the threshold.
    if (state == TcpSocketState::CA_OPEN && (before == TcpSocketState::CA_CWR || before == TcpSocketState::CA_RECOVERY))
    {
        m_reached = true;
    }
    if (state != TcpSocketState::CA_LOSS)
    {
        return;
    }
    StartRound(tcb); // a timeout marks the whole window lost, which says nothing about the share that is
    m_short = false;
    m_reached = false;
    // Without any ACK the link is not congested, but dead.
    m_timeouts = (Simulator::Now() - m_acknowledged).GetMicroSeconds() < DEAD ? m_timeouts + 1 : 0;
    if (m_timeouts > m_timeoutLimit)
    {
        GiveWay(tcb, priorWindow);
    }
}

void
TcpAv::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    if (Guarantees())
    {
        SetThreshold(tcb, m_window); // below it the window grows by slow start
    }
    Grow(tcb, acked);
    if (m_ceiling && m_target > 0 && m_window > 0)
    {
        SetWindow(tcb, std::min(Window(tcb), m_window));
    }
    m_reached |= Window(tcb) >= m_window;
}

// Temporary congestion, a loss or a mark: back to what the target takes.
uint32_t
TcpAv::LossThreshold(Ptr<const TcpSocketState> tcb) const
{
    uint32_t half = TcpPacketReno::LossThreshold(tcb);
    return Guarantees() ? std::max(half, m_window) : half;
}

uint32_t
TcpAv::GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t bytesInFlight)
{
    priorWindow = Window(tcb);
    return TcpPacketReno::GetSsThresh(tcb, bytesInFlight);
}

} // namespace ns3
