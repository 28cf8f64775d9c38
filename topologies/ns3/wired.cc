// SPDX-License-Identifier: Apache-2.0
// Stations and a server on wires of an access point, whose links are the switch's: what Mininet's labs are, in ns-3.
#include "lab.h"

#include "ns3/simple-channel.h"

using namespace ns3;

extern "C"
{
/// `stations` on wires of their own, or all on one (`shared`); then the server. `down`, `up`: the links of the ports to
/// them, as AccessPoint::AddPort() takes them. See lab_error().
Lab*
wired_new(uint32_t seed, uint32_t stations, bool shared, const char* down, const char* up, const char* options)
{
    BeginLab(seed);
    auto lab = new Lab;
    auto node = CreateObject<Node>();
    std::vector<Ptr<NetDevice>> ports;
    std::vector<Ptr<NetDevice>> hosts;
    Ptr<SimpleChannel> channel;
    for (uint32_t station = 0; station < stations; station++)
    {
        if (!shared || !channel)
        {
            channel = CreateObject<SimpleChannel>();
            ports.push_back(Plug(node, channel));
        }
        lab->stations.push_back(CreateObject<Node>());
        hosts.push_back(Plug(lab->stations.back(), channel));
    }
    channel = CreateObject<SimpleChannel>();
    lab->server = CreateObject<Node>();
    hosts.insert(hosts.begin(), Plug(lab->server, channel));
    auto uplink = Plug(node, channel);
    GiveAddresses(*lab, hosts);
    lab->accessPoint = CreateObject<AccessPoint>();
    for (const auto& port : ports)
    {
        lab->accessPoint->AddPort(port, down);
    }
    lab->accessPoint->AddPort(uplink, up);
    lab->accessPoint->Start(options);
    return lab;
}
}
