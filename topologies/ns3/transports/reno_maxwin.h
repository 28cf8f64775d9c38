// SPDX-License-Identifier: Apache-2.0
// Reno-MaxWin10: Reno (RFC 5681) whose window never exceeds a bound. Jung and Park, "Instantaneous fairness of TCP in
// heterogeneous traffic wireless LAN environments", 2016, section 5.1. In Linux: hosts/bpf/reno_maxwin.bpf.c.
#pragma once

#include "reno.h"

namespace ns3
{

class TcpRenoMaxwin : public TcpPacketReno
{
  public:
    static TypeId GetTypeId();
    void Init(Ptr<TcpSocketState> tcb) override;
    void IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked) override;
    Ptr<TcpCongestionOps> Fork() override;

  private:
    uint32_t m_bound; ///< packets
};

} // namespace ns3
