// Instructions that the processor may lack; see instructions.cpp.
#pragma once

// From now on they are computed by the program where the processor refuses them.
void compute_refused_instructions();

// How often that was so.
long long refused_instructions();
