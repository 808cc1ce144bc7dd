// The few names of gloo that torch's ProcessGroupGloo.hpp mentions, declared for wheels that do not carry gloo's headers. Pointers to
// these types are all that ever crosses; objects are made inside torch. To follow a new torch: compile, and add what it misses.
#pragma once
