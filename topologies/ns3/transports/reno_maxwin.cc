// SPDX-License-Identifier: Apache-2.0
#include "reno_maxwin.h"

#include "ns3/uinteger.h"

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(TcpRenoMaxwin);

TypeId
TcpRenoMaxwin::GetTypeId()
{
    static TypeId tid = TypeId("ns3::TcpRenoMaxwin")
                            .SetParent<TcpPacketReno>()
                            .SetGroupName("Internet")
                            .AddConstructor<TcpRenoMaxwin>()
                            .AddAttribute("Bound",
                                          "The window's bound, packets",
                                          UintegerValue(10),
                                          MakeUintegerAccessor(&TcpRenoMaxwin::m_bound),
                                          MakeUintegerChecker<uint32_t>(1));
    return tid;
}

Ptr<TcpCongestionOps>
TcpRenoMaxwin::Fork()
{
    return CopyObject<TcpRenoMaxwin>(this);
}

void
TcpRenoMaxwin::Init(Ptr<TcpSocketState> tcb)
{
    TcpPacketReno::Init(tcb);
    SetWindow(tcb, std::min(Window(tcb), m_bound));
}

void
TcpRenoMaxwin::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    TcpPacketReno::IncreaseWindow(tcb, acked);
    SetWindow(tcb, std::min(Window(tcb), m_bound));
}

} // namespace ns3
