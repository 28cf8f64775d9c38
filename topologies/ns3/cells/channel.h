// SPDX-License-Identifier: Apache-2.0
// Disturbances of a cell: bursts in which nothing of a station arrives, and other networks on its channel.
#pragma once

#include "ns3/event-id.h"
#include "ns3/mobility-model.h"
#include "ns3/net-device.h"
#include "ns3/nstime.h"
#include "ns3/object.h"
#include "ns3/propagation-loss-model.h"
#include "ns3/random-variable-stream.h"

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
