// SPDX-License-Identifier: Apache-2.0
#include "reno_maxwin.h"

#include "ns3/uinteger.h"

namespace ns3
{

namespace
{

constexpr reno_maxwin_options DEFAULTS = RENO_MAXWIN_DEFAULTS;

} // namespace

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
                                          UintegerValue(DEFAULTS.bound),
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
    Limit(tcb);
}

void
TcpRenoMaxwin::IncreaseWindow(Ptr<TcpSocketState> tcb, uint32_t acked)
{
    TcpPacketReno::IncreaseWindow(tcb, acked);
    Limit(tcb);
}

void
TcpRenoMaxwin::Limit(Ptr<TcpSocketState> tcb) const
{
    const reno_maxwin_options options{m_bound};
    SetWindow(tcb, reno_maxwin(Window(tcb), &options));
}

} // namespace ns3
