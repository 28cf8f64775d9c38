// SPDX-License-Identifier: Apache-2.0
// TCP-AV in ns-3: see ../algorithms/tcp_av.h. Linux's also bounds the retransmission timer; ns-3's has no bound.
#pragma once

#include "reno.h"

#include "../algorithms/tcp_av.h"

namespace ns3
{

class TcpAv : public TcpPacketReno
{
  public:
    static TypeId GetTypeId();
    void Init(Ptr<TcpSocketState> tcb) override;
    void PktsAcked(Ptr<TcpSocketState> tcb, uint32_t acked, const Time& rtt) override;
    void CongestionStateSet(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCongState_t state) override;
    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override;
    Ptr<TcpCongestionOps> Fork() override;

    uint32_t GetSsThresh(Ptr<const TcpSocketState> tcb, uint32_t bytesInFlight) override;

  protected:
    uint32_t LossThreshold(Ptr<const TcpSocketState> tcb) const override;

  private:
    av_options Options() const;

    uint32_t m_target, m_lossLimit, m_timeoutLimit; ///< as in av_options, with the next three
    Time m_rest;
    bool m_ceiling;
    Time m_patience;
    uint32_t m_priorWindow{0}; ///< packets, before the last reduction; kept at each threshold asked for
    av m_av{};
};

} // namespace ns3
