// SPDX-License-Identifier: Apache-2.0
// A lab: stations, a server, an access point between them, and what they send. Who builds one (wired.cc) hands it out;
// lab.cc has the calls that Python makes on any (lab.py).
#ifndef LAB_H
#define LAB_H

#include "access-point.h"
#include "traffic.h"

#include "ns3/node.h"
#include "ns3/simple-channel.h"
#include "ns3/simple-net-device.h"

#include <cstdint>
#include <string>
#include <vector>

struct Lab
{
    std::vector<ns3::Ptr<ns3::Node>> stations;
    ns3::Ptr<ns3::Node> server;
    /** Null: what is between them is ns-3's own. */
    ns3::Ptr<ns3::AccessPoint> accessPoint;
    std::vector<ns3::Ptr<ns3::Transfer>> transfers;
    std::vector<ns3::Ptr<ns3::RoundTripProbe>> probes;
    /** The first thing that went wrong beside the access point; one line. */
    std::string error;
};

/**
 * Before anything else of a simulation, its defaults too: chance from a seed, and all else as ns-3 has it, whatever ran in
 * this process before.
 */
void BeginSimulation(uint64_t seed);

/**
 * Before anything else is made: BeginSimulation(), frames with checksums, and TCP as Linux has it where ns-3's own is
 * another.
 */
void BeginLab(uint32_t seed);

/** The node's end of a wire that is no bottleneck. */
ns3::Ptr<ns3::SimpleNetDevice> Plug(ns3::Ptr<ns3::Node> node, ns3::Ptr<ns3::SimpleChannel> channel);

/** IP on hosts that have devices, all in one network: the server first, as 10.0.0.1. */
void GiveAddresses(Lab& lab, const std::vector<ns3::Ptr<ns3::NetDevice>>& devices);

/** The first address of a host. */
ns3::Ipv4Address AddressOf(ns3::Ptr<ns3::Node> host);

#endif
