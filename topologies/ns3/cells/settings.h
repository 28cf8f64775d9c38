// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

namespace ns3
{

/// Error over a setting that a cell cannot have.
using SettingError = std::invalid_argument;

constexpr double MIN_SETTING = 0.001; ///< smallest value of a setting that must not be 0
constexpr double MAX_SETTING = 1e6;   ///< largest value where ns-3 has no limit and we see no use of more

/// Values by name, as they come from Python; each is asked for once, and one that nobody asks for is an error. All but
/// Has() raise SettingError.
class Settings
{
  public:
    /// Parse words "name=value".
    Settings(const char* const* words, size_t count);
    std::string Text(const std::string& name, const std::string& otherwise);
    double Number(const std::string& name, double otherwise);
    /// From `least` to `most`.
    double Number(const std::string& name, double otherwise, double least, double most);
    /// The same, without what is behind the point.
    uint32_t Whole(const std::string& name, uint32_t otherwise, double least, double most);
    /// So, or 0, which it is if it is not given.
    double NumberOrNone(const std::string& name, double least, double most);
    bool Has(const std::string& name) const;
    /// Raise SettingError for a setting that nothing has read.
    void Finish() const;

  private:
    /// Raise SettingError for a value; `may` names the allowed ones.
    [[noreturn]] static void Refuse(const std::string& name, const std::string& text, const std::string& may);
    /// Return the text of a setting; empty: it was not given.
    std::string Given(const std::string& name) const;

    std::map<std::string, std::string> m_values;
};

} // namespace ns3
