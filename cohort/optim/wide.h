// Numbers that a rule keeps in the state of a tensor, as two of the tensor's type each: the second has the digits that the first lost, so
// that a number of a float tensor keeps 48 bits. They are saved and carried as all state is. Owner: the state. Threads: any. Failure: none.
#pragma once

namespace cohort::optim {

template <class T>
double read_wide(const T* from) {
  return static_cast<double>(from[0]) + static_cast<double>(from[1]);
}
template <class T>
void write_wide(T* to, double value) {
  to[0] = static_cast<T>(value);
  to[1] = static_cast<T>(value - static_cast<double>(to[0]));
}

}  // namespace cohort::optim
