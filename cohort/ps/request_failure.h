// Why a worker's request cannot be met, or nothing:
//   if (auto error = failure_in([&] { carry_out(worker); })) ...
// Failures, and more memory than there is (Kind::system), are the request's own; what ends the server (Interrupted) passes.
// Threads: any.
#pragma once
#include <new>
#include <optional>
#include <stdexcept>

#include "cohort/base/error.h"
#include "cohort/collective/peer_channel.h"

namespace cohort::ps {

template <class Do>
std::optional<Error> failure_in(const Do& request) {
  constexpr const char* kTooMuch = "a request takes more memory than its server has; use more servers, or smaller messages";
  try {
    request();
    return {};
  } catch (const collective::Interrupted&) {
    throw;
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const std::bad_alloc&) {
    return Error{Kind::system, kTooMuch};
  } catch (const std::length_error&) {
    return Error{Kind::system, kTooMuch};
  }
}

}  // namespace cohort::ps
