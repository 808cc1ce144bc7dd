// The few names of gloo that torch's ProcessGroupGloo.hpp mentions, declared for wheels that do not carry gloo's headers. Pointers to
// these types are all that ever crosses; objects are made inside torch. To follow a new torch: compile, and add what it misses.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace gloo::rendezvous
