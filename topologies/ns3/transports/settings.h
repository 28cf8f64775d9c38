// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace ns3
{

/// Values by name, as they come from Python; each is asked for once, and one that nobody asks for is an error. All but
/// Has() raise std::invalid_argument.
class Settings
{
  public:
    /// Of words "name=value".
    Settings(const char* const* words, size_t count);
    std::string Text(const std::string& name, const std::string& otherwise);
    double Number(const std::string& name, double otherwise);
    /// From `least` to `most`.
    double Number(const std::string& name, double otherwise, double least, double most);
    /// So, or 0, which it is if it is not given.
    double NumberOrNone(const std::string& name, double least, double most);
    bool Has(const std::string& name) const;
    /// What was not asked for is an error.
    void Finish() const;

  private:
    std::map<std::string, std::string> m_values;
};

} // namespace ns3
