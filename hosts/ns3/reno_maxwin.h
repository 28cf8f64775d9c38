// SPDX-License-Identifier: Apache-2.0
// Reno-MaxWin10 in ns-3: see ../algorithms/reno_maxwin.h.
#pragma once

#include "reno.h"

#include "../algorithms/reno_maxwin.h"

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
    void Limit(Ptr<TcpSocketState> tcb) const;

    uint32_t m_bound; ///< as in reno_maxwin_options
};

} // namespace ns3
