// Text for a terminal that may quote what came from outside (class names, paths, cells of a table, texts of a manifest): what would move
// the cursor, colour or rename the window is shown as \x1b, tabs as \t; lines stay lines. Threads: any.
#pragma once
#include <string>
#include <string_view>

namespace cohort {

std::string terminal_text(std::string_view text, std::string_view line_break = "\n");

}  // namespace cohort
