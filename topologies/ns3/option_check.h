// SPDX-License-Identifier: Apache-2.0
// What ns-3 can be asked for: looked at before, as ns-3 itself ends the process over a name that it does not know.
#ifndef OPTION_CHECK_H
#define OPTION_CHECK_H

#include <string>

/** Of all times and intervals, s: a simulator's, in 64 bits of ns, ends far beyond. */
constexpr double MAX_TIME = 1e6;

/** Whether there is a TypeId `name`, a child of `parent` of which ns-3 can make objects. */
bool CanMake(const std::string& name, const std::string& parent);

/** What is wrong with a congestion control as ns-3's object factories are told of one: "ns3::TcpCubic[Beta=0.5|C=0.2]".
 *  One line; empty: nothing. */
std::string WrongCongestionControl(const std::string& text);

#endif
