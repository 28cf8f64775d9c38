// SPDX-License-Identifier: Apache-2.0
// Checks of names and attributes before ns-3 gets them, as ns-3 ends the process over a name that it does not know.
#ifndef OPTION_CHECK_H
#define OPTION_CHECK_H

#include <string>

/** Largest time and interval, s: the simulator's, in 64 bits of ns, ends far beyond. */
constexpr double MAX_TIME = 1e6;

/** Check that there is a TypeId `name`, a child of `parent`, of which ns-3 can make objects. */
bool CanMake(const std::string& name, const std::string& parent);

/** Check a congestion control in the words of ns-3's object factories: "ns3::TcpCubic[Beta=0.5|C=0.2]".
 *  Return one line with the mistake; empty: none. */
std::string WrongCongestionControl(const std::string& text);

#endif
