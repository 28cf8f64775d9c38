// SPDX-License-Identifier: Apache-2.0
// TCP-AV, a QoS-TCP: Ando, Murase and Oguchi, "Characteristics of QoS-guaranteed TCP on real mobile terminal in wireless LAN",
// section II.B. The user names a target rate. Of it and the RTT follows the window that the rate takes; the slow-start
// threshold is set to that window, a lost packet does not push the window below it, and the guarantee is given up before
// the network collapses. The paper names these behaviours; the rule for giving way is ours (docs/hosts/cc.md). In Linux:
// hosts/bpf/tcp_av.bpf.c.
#pragma once

#include "reno.h"

namespace ns3
{

class TcpAv : public TcpPacketReno
{
  public:
    static TypeId GetTypeId();
    void Init(Ptr<TcpSocketState> tcb) override;
    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt) override;
    void CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state) override;
    void CwndEvent(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCAEvent_t event) override;
    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override;
    Ptr<TcpCongestionOps> Fork() override;

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t bytesInFlight) override;

    uint32_t priorWindow{0}; ///< packets, before the last reduction; kept at each threshold asked for

  protected:
    uint32_t LossThreshold(Ptr<const TcpSocketState> tcb) const override;

  private:
    static constexpr uint64_t ONE = 65536; ///< loss shares are in 1/65536

    bool Guarantees() const;
    void RenewWindow(Ptr<const TcpSocketState> tcb);
    void StartRound(Ptr<const TcpSocketState> tcb);
    void GiveWay(Ptr<TcpSocketState> tcb, uint32_t window);

    uint32_t m_target;       ///< kbit/s of payload; 0: none, plain Reno
    uint32_t m_lossLimit;    ///< percent
    uint32_t m_timeoutLimit;
    Time m_rest;             ///< before it tries again
    bool m_ceiling;          ///< the window does not exceed the target's either
    uint32_t m_window{2};    ///< packets that the target takes
    uint64_t m_loss{0};      ///< smoothed share
    uint32_t m_timeouts{0};  ///< since the last good round
    bool m_yielding{false};
    SequenceNumber32 m_roundEnd; ///< the round is over when this is acknowledged
    uint32_t m_lost{0};          ///< `progress` at its start
    uint32_t m_delivered{0};
    Time m_since; ///< when it gave way
};

} // namespace ns3
