// SPDX-License-Identifier: Apache-2.0
// TCP Vegas with the choices of Linux, and Vegas-Fair, which asks for more after a pause. Brakmo and Peterson, "TCP Vegas: end
// to end congestion avoidance on a global internet", IEEE JSAC 13(8), 1995; Jung and Park, "Instantaneous fairness of TCP in
// heterogeneous traffic wireless LAN environments", 2016, section 5.1 and Fig. 5. In Linux: hosts/bpf/vegas_fair.bpf.c.
// ns-3's own TcpVegas judges by smoothed round trips; this one by the smallest of each round, as the paper of 1995 does.
#pragma once

#include "reno.h"

namespace ns3
{

class TcpPacketVegas : public TcpPacketReno
{
  public:
    static TypeId GetTypeId();
    void Init(Ptr<TcpSocketState> tcb) override;
    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt) override;
    void CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state) override;
    void CwndEvent(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCAEvent_t event) override;
    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override;
    Ptr<TcpCongestionOps> Fork() override;

  protected:
    /// Numbers of packets that may stand in queues now: alpha and beta.
    virtual std::pair<uint32_t, uint32_t> Bounds();

    uint32_t m_alpha, m_beta, m_gamma;

  private:
    static constexpr int64_t NO_RTT = 0x7fffffff; ///< us

    void Restart(Ptr<const TcpSocketState> tcb);
    void StartRound(Ptr<const TcpSocketState> tcb);
    void Judge(Ptr<TcpSocketState> tcb, uint32_t alpha, uint32_t beta, uint32_t acked);

    SequenceNumber32 m_roundEnd; ///< the round is over when this is acknowledged
    uint32_t m_samples{0};       ///< round trips seen in this round
    int64_t m_roundRtt{NO_RTT};  ///< smallest of them, us
    int64_t m_baseRtt{NO_RTT};   ///< smallest of the connection since it was idle, us
    bool m_active{true};         ///< off while losses are repaired
};

class TcpVegasFair : public TcpPacketVegas
{
  public:
    static TypeId GetTypeId();
    void CwndEvent(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCAEvent_t event) override;
    Ptr<TcpCongestionOps> Fork() override;

  protected:
    std::pair<uint32_t, uint32_t> Bounds() override;

  private:
    Time m_pause;            ///< without a segment: a new session starts
    uint32_t m_introduction; ///< bytes of the session during which it is favoured
    uint32_t m_moreAlpha, m_moreBeta;
    bool m_introducing{false};
    uint64_t m_sessionStart{0}; ///< bytes sent before the session
};

} // namespace ns3
