// SPDX-License-Identifier: Apache-2.0
#include "channel.h"

#include "ns3/double.h"
#include "ns3/node.h"
#include "ns3/packet.h"
#include "ns3/simple-net-device.h"
#include "ns3/simulator.h"

#include <algorithm>

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(BurstLoss);
NS_OBJECT_ENSURE_REGISTERED(ForeignTraffic);
NS_OBJECT_ENSURE_REGISTERED(Pipes);

namespace
{

constexpr double NOTHING = -1000;         // dBm
constexpr uint32_t FRAME = 1472;          // bytes of payload
constexpr uint32_t HEADERS = 36;          // bytes: the MAC's, LLC, checksum
constexpr double PREAMBLE = 26e-6;        // s, with the signal extension of 802.11g
constexpr uint16_t EXPERIMENTAL = 0x88b5; // IEEE Std 802's type for local experiments

} // namespace

TypeId
BurstLoss::GetTypeId()
{
    static TypeId tid = TypeId("ns3::BurstLoss")
                            .SetParent<PropagationLossModel>()
                            .SetGroupName("Propagation")
                            .AddConstructor<BurstLoss>();
    return tid;
}

void
BurstLoss::SetTimes(Time between, Time burst)
{
    m_between = between;
    m_burst = burst;
}

void
BurstLoss::AddStation(Ptr<MobilityModel> station)
{
    auto& added = m_stations[station];
    added.chance = CreateObject<ExponentialRandomVariable>();
    added.until = Seconds(added.chance->GetValue(m_between.GetSeconds(), 0));
}

double
BurstLoss::DoCalcRxPower(double power, Ptr<MobilityModel> from, Ptr<MobilityModel> to) const
{
    auto one = m_stations.find(from);
    auto other = m_stations.find(to);
    if ((one == m_stations.end()) == (other == m_stations.end()))
    {
        return power; // of two stations, or of none
    }
    auto& station = one == m_stations.end() ? other->second : one->second;
    while (station.until <= Simulator::Now())
    {
        station.lost = !station.lost;
        const Time& mean = station.lost ? m_burst : m_between;
        station.until += Seconds(station.chance->GetValue(mean.GetSeconds(), 0));
    }
    return station.lost ? NOTHING : power;
}

int64_t
BurstLoss::DoAssignStreams(int64_t)
{
    return 0; // each station's is its own
}

TypeId
Pipes::GetTypeId()
{
    static TypeId tid = TypeId("ns3::Pipes").SetParent<SimpleChannel>().SetGroupName("Network").AddConstructor<Pipes>();
    return tid;
}

void
Pipes::SetInterval(Time every)
{
    m_every = every;
}

void
Pipes::AddStation(Mac48Address station, Time mean)
{
    auto& pipe = m_pipes[station];
    pipe.mean = mean;
    pipe.chance = CreateObject<UniformRandomVariable>();
}

Time
Pipes::Delay(Mac48Address to, Mac48Address from)
{
    auto found = m_pipes.find(from);
    const bool up = found != m_pipes.end();
    if (!up)
    {
        found = m_pipes.find(to);
    }
    if (found == m_pipes.end())
    {
        return Time(0); // from the server to all: ARP
    }
    auto& pipe = found->second;
    const Time now = Simulator::Now();
    while (pipe.until <= now)
    {
        pipe.delay = Seconds(pipe.chance->GetValue(0, 2 * pipe.mean.GetSeconds()));
        pipe.until += m_every;
    }
    pipe.last[up] = std::max(pipe.last[up], now + pipe.delay);
    return pipe.last[up] - now;
}

void
Pipes::Send(Ptr<Packet> packet, uint16_t protocol, Mac48Address to, Mac48Address from, Ptr<SimpleNetDevice> sender)
{
    const Time delay = Delay(to, from);
    for (size_t i = 0; i < GetNDevices(); i++)
    {
        auto device = DynamicCast<SimpleNetDevice>(GetDevice(i));
        if (device != sender)
        {
            Simulator::ScheduleWithContext(device->GetNode()->GetId(),
                                           delay,
                                           &SimpleNetDevice::Receive,
                                           device,
                                           packet->Copy(),
                                           protocol,
                                           to,
                                           from);
        }
    }
}

TypeId
ForeignTraffic::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::ForeignTraffic").SetParent<Object>().SetGroupName("Wifi").AddConstructor<ForeignTraffic>();
    return tid;
}

void
ForeignTraffic::Start(Ptr<NetDevice> device, double mbps, double share)
{
    m_device = device;
    m_gap = CreateObject<ExponentialRandomVariable>();
    m_gap->SetAttribute("Mean", DoubleValue((PREAMBLE + (FRAME + HEADERS) * 8e-6 / mbps) / share));
    m_next = Simulator::Schedule(Seconds(m_gap->GetValue()), &ForeignTraffic::Send, this);
}

void
ForeignTraffic::Send()
{
    m_device->Send(Create<Packet>(FRAME), m_device->GetBroadcast(), EXPERIMENTAL);
    m_next = Simulator::Schedule(Seconds(m_gap->GetValue()), &ForeignTraffic::Send, this);
}

void
ForeignTraffic::DoDispose()
{
    m_next.Cancel();
    m_device = nullptr;
    Object::DoDispose();
}

} // namespace ns3
