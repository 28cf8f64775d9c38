// SPDX-License-Identifier: Apache-2.0
// A cell of 802.11 with stations around an access point and a server behind a wire, and the traffic of the papers in it. What
// stands between the radio and the wire is a bridge, or an access point of this project.
//
//     station 1 .. n --802.11-- AP node --wire-- server
//     own queue                 queue of its radio
//
// With a second access point, behind the same wire and on a channel of its own, the last stations are there, and the first
// one walks from one to the other.
#pragma once

#include "cell_flow.h"
#include "channel.h"

#include "ns3/event-id.h"
#include "ns3/net-device-container.h"
#include "ns3/node-container.h"
#include "ns3/simple-channel.h"
#include "ns3/yans-wifi-helper.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ns3
{

class AccessPoint;

/// One measurement; times in s since the simulation's start, `time` the middle of `span`.
struct CellSample
{
    double time;
    double value;
    double span;
    const char* quantity;
    const char* source;
};

/// UDP from one node to another at a rate.
struct CellStream
{
    std::string name;
    Ptr<Socket> from, to;
    uint32_t bytes;
    Time every;
    double stop;
    uint64_t arrived{0};
};

class Cell
{
  public:
    Cell() = default;
    /// Ends the simulation, also one that was half made.
    ~Cell();
    Cell(const Cell&) = delete;
    Cell& operator=(const Cell&) = delete;

    /// Make the cell's nodes and links, once. Raises SettingError.
    void Make(Settings& settings);
    /// Add a flow, a stream, or a middleware, before the cell runs. Raises SettingError; the cell is then without it.
    void Add(const std::string& kind, Settings& settings);
    /// Raises SettingError for a time that is none, or over.
    void Run(double until);
    const std::vector<CellSample>& Samples() const;
    /// Access points of this project; none behind bridges.
    const std::vector<Ptr<AccessPoint>>& Ours() const;

  private:
    void AddFlow(Settings& settings);
    void AddStream(Settings& settings);
    void AddMiddleware(Settings& settings);
    void Configure(Settings& settings);
    Ptr<YansWifiChannel> MakeAir(Settings& settings);
    void MakeRadios(Settings& settings);
    void Place(Settings& settings);
    void PlaceMobile(Settings& settings);
    Ptr<SimpleChannel> MakeChannel(Settings& settings);
    void MakeWire(Settings& settings);
    void Enqueued(Ptr<const WifiMpdu> frame);
    void Dequeued(Ptr<const WifiMpdu> frame);
    /// Return the flow and the number of a segment that opens a session of it, or none.
    std::optional<std::pair<size_t, uint32_t>> Opening(Ptr<const WifiMpdu> frame) const;
    void Leave();
    void Arrive();
    Ptr<Node> Station(Settings& settings, uint32_t& number) const;
    void ScheduleLooks();
    void Look();
    void LookCloser();
    void Send(CellStream* stream);
    void Take(CellStream* stream, Ptr<Socket> socket);
    void Keep(double time, const std::string& quantity, double value, double span, const std::string& source);

    NodeContainer m_stations, m_accessPoints;
    Ptr<Node> m_server;
    double m_apart{0};    ///< m between two access points; 0: there is one
    uint32_t m_beyond{0}; ///< stations at the second
    NetDeviceContainer m_stationRadios, m_radios;
    std::vector<WifiPhy::ChannelTuple> m_channels; ///< of the first access point, of the second, and of nobody
    Ptr<BurstLoss> m_bursts;
    std::vector<Ptr<ForeignTraffic>> m_foreign;
    std::vector<Ptr<AccessPoint>> m_ours;
    Ipv4Address m_serverAddress;
    std::vector<Ipv4Address> m_addresses;
    std::vector<std::unique_ptr<CellFlow>> m_flows;
    std::vector<std::unique_ptr<CellStream>> m_streams;
    /// When segments that open sessions came to an access point's radio; below 0: they have gone.
    std::map<std::pair<size_t, uint32_t>, double> m_waiting;
    std::vector<CellSample> m_samples;
    std::deque<std::string> m_names;
    std::map<std::string, const char*> m_known;
};

} // namespace ns3
