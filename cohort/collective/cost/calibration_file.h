// Where measured constants of the cost model are kept, one small file per transport, and whether those found there are this machine's:
// rates of another one would mislead the selector more than the built-in ones do.
// Threads: any. Failure: none; constants that cannot be used are left out, with the reason in the log at level debug.
#pragma once
#include <string>
#include <string_view>

namespace cohort::collective {

// "$XDG_CACHE_HOME/cohort/", else "$HOME/.cache/cohort/": where `cohort bench --calibrate` writes when nothing else is said.
std::string usual_calibration_folder();
std::string calibration_file(const std::string& folder, std::string_view transport);  // folder ends with a slash
std::string processor_name();
std::string machine_text();  // name, processor and cores: what a file says about where it was measured

// What Options::calibration should be for `wish`:
//   ""     the built-in constants, as does "none"
//   x/     the file for this transport in that folder, when it can be read and was measured here, else the built-in constants
//   x      that file, wherever it was measured; opening the communicator fails when it cannot be read
std::string find_calibration(const std::string& wish, std::string_view transport);

}  // namespace cohort::collective
