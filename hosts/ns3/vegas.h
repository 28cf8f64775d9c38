// SPDX-License-Identifier: Apache-2.0
// Vegas and Vegas-Fair in ns-3: see ../algorithms/vegas.h and vegas_fair.h. ns-3's own TcpVegas judges by smoothed round
// trips; this one by the smallest of each round, as the paper of 1995 does.
#pragma once

#include "reno.h"

#include "../algorithms/vegas_fair.h"

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
    /// Return the options for now.
    virtual vegas_options Options();

    vegas_fair m_state{}; ///< that of plain Vegas is a part

  private:
    uint32_t m_alpha, m_beta, m_gamma; ///< as in vegas_options
};

class TcpVegasFair : public TcpPacketVegas
{
  public:
    static TypeId GetTypeId();
    void CwndEvent(Ptr<TcpSocketState> tcb, TcpSocketState::TcpCAEvent_t event) override;
    Ptr<TcpCongestionOps> Fork() override;

  protected:
    vegas_options Options() override;

  private:
    vegas_fair_options FairOptions();

    Time m_pause; ///< as in vegas_fair_options
    uint32_t m_introduction, m_moreAlpha, m_moreBeta;
};

} // namespace ns3
