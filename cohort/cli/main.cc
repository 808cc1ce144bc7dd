#include "cohort/cli/cli.h"

int main(int argc, char** argv) { return cohort::cli::dispatch(cohort::cli::commands(), argc, argv); }
