// SPDX-License-Identifier: Apache-2.0
// Disturbances of a cell: bursts in which nothing of a station arrives, other networks on its channel, and a wire whose
// delay changes.
#pragma once

#include "ns3/event-id.h"
#include "ns3/mobility-model.h"
#include "ns3/net-device.h"
#include "ns3/nstime.h"
#include "ns3/object.h"
#include "ns3/propagation-loss-model.h"
#include "ns3/random-variable-stream.h"
#include "ns3/simple-channel.h"

#include <map>

namespace ns3
{

/// Now and then nothing passes between a station and any access point, in either direction, for so long that a MAC gives
/// up. Each station has bursts of its own; others hear it as ever, so that nobody takes the air for idle.
class BurstLoss : public PropagationLossModel
{
  public:
    static TypeId GetTypeId();
    /// Means, both of exponential distributions.
    void SetTimes(Time between, Time burst);
    void AddStation(Ptr<MobilityModel> station);

  private:
    struct Station
    {
        Ptr<ExponentialRandomVariable> chance;
        bool lost{false};
        Time until;
    };

    double DoCalcRxPower(double power, Ptr<MobilityModel> from, Ptr<MobilityModel> to) const override;
    int64_t DoAssignStreams(int64_t stream) override;

    Time m_between, m_burst;
    mutable std::map<Ptr<MobilityModel>, Station> m_stations;
};

/// A wire on which each station has a pipe of its own, as Dummynet makes them: a delay that is drawn again every while, from
/// 0 to twice its mean. Packets of a pipe keep their order.
class Pipes : public SimpleChannel
{
  public:
    static TypeId GetTypeId();
    void SetInterval(Time every);
    /// mean: of one direction.
    void AddStation(Mac48Address station, Time mean);
    void Send(Ptr<Packet> packet,
              uint16_t protocol,
              Mac48Address to,
              Mac48Address from,
              Ptr<SimpleNetDevice> sender) override;

  private:
    struct Pipe
    {
        Time mean, delay, until;
        Time last[2]; ///< arrival of the last packet, to the station and from it
        Ptr<UniformRandomVariable> chance;
    };

    /// Return the time that a packet takes from now on.
    Time Delay(Mac48Address to, Mac48Address from);

    Time m_every;
    std::map<Mac48Address, Pipe> m_pipes;
};

/// Frames of somebody else, as many as take a share of the air. It defers to others as they do to it.
class ForeignTraffic : public Object
{
  public:
    static TypeId GetTypeId();
    /// From now on. `device`: of 802.11, in ad-hoc mode, which sends to all at `mbps`. share: of the air, above 0.
    void Start(Ptr<NetDevice> device, double mbps, double share);

  protected:
    void DoDispose() override;

  private:
    void Send();

    Ptr<NetDevice> m_device;
    Ptr<ExponentialRandomVariable> m_gap;
    EventId m_next;
};

} // namespace ns3
