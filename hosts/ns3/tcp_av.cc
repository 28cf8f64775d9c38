// SPDX-License-Identifier: Apache-2.0
#include "tcp_av.h"

#include "ns3/boolean.h"
#include "ns3/simulator.h"
#include "ns3/uinteger.h"

namespace ns3
{

namespace
{

constexpr av_options DEFAULTS = AV_DEFAULTS;

} // namespace

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
                          UintegerValue(DEFAULTS.target),
                          MakeUintegerAccessor(&TcpAv::m_target),
                          MakeUintegerChecker<uint32_t>())
            .AddAttribute("LossLimit",
                          "Above it, per cent smoothed over 8 rounds, the guarantee is given up",
                          UintegerValue(DEFAULTS.loss_limit),
                          MakeUintegerAccessor(&TcpAv::m_lossLimit),
                          MakeUintegerChecker<uint32_t>(0, 100))
            .AddAttribute("TimeoutLimit",
                          "After more timeouts than this without a good round between them it is given up, too",
                          UintegerValue(DEFAULTS.timeout_limit),
                          MakeUintegerAccessor(&TcpAv::m_timeoutLimit),
                          MakeUintegerChecker<uint32_t>())
            .AddAttribute("Rest",
                          "Before it tries again",
                          TimeValue(MilliSeconds(DEFAULTS.rest)),
                          MakeTimeAccessor(&TcpAv::m_rest),
                          MakeTimeChecker())
            .AddAttribute("Ceiling",
                          "The window does not exceed the target's either",
                          BooleanValue(DEFAULTS.ceiling != 0),
                          MakeBooleanAccessor(&TcpAv::m_ceiling),
                          MakeBooleanChecker())
            .AddAttribute("Patience",
                          "The guarantee is given up when losses or marks keep it below the target for so long",
                          TimeValue(MilliSeconds(DEFAULTS.patience)),
                          MakeTimeAccessor(&TcpAv::m_patience),
                          MakeTimeChecker());
    return tid;
}

Ptr<TcpCongestionOps>
TcpAv::Fork()
{
    return CopyObject<TcpAv>(this);
}

av_options
TcpAv::Options() const
{
    return {
        .target = m_target,
        .loss_limit = m_lossLimit,
        .timeout_limit = m_timeoutLimit,
        .rest = static_cast<uint32_t>(m_rest.GetMilliSeconds()),
        .ceiling = m_ceiling,
        .patience = static_cast<uint32_t>(m_patience.GetMilliSeconds()),
    };
}

void
TcpAv::Init(Ptr<TcpSocketState> tcb)
{
    TcpPacketReno::Init(tcb);
    auto view = View(tcb);
    m_av = {};
    av_start(&m_av, &view, m_target);
    Take(tcb, view);
    tcb->m_pacing = tcb->m_pacing || av_paces(&m_av);
}

void
TcpAv::PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt)
{
    TcpPacketReno::PktsAcked(tcb, acked, rtt);
    auto view = View(tcb);
    if (av_ack(&m_av, &view))
    {
        auto options = Options();
        av_end_round(&m_av, &view, m_target, &options);
        Take(tcb, view);
    }
}

void
TcpAv::CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state)
{
    if (state == TcpSocketState::CA_CWR)
    {
        progress.marked++; // of each answered mark, and a round has one
    }
    auto options = Options();
    auto view = View(tcb);
    av_set_state(&m_av, &view, state, m_priorWindow, &options);
    Take(tcb, view);
}

void
TcpAv::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    auto options = Options();
    auto view = View(tcb);
    av_before_growth(&m_av, &view);
    Take(tcb, view);
    Grow(tcb, acked);
    view = View(tcb);
    av_after_growth(&m_av, &view, &options);
    Take(tcb, view);
}

uint32_t
TcpAv::LossThreshold(Ptr<const TcpSocketState> tcb) const
{
    return av_ssthresh(&m_av, TcpPacketReno::LossThreshold(tcb));
}

uint32_t
TcpAv::GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t bytesInFlight)
{
    m_priorWindow = Window(tcb);
    return TcpPacketReno::GetSsThresh(tcb, bytesInFlight);
}

} // namespace ns3
