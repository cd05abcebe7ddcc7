// Registration: puts the device into PyTorch: kernels, views, copies, guard, hooks, generator.
#pragma once

namespace lazyt::frontend {

// Idempotent. Touches neither the plugin nor the device. [any thread]
void initialize();

// Records by name what libraries defined since; before the first call of such an operator, or its body would run on
// the device. Called behind every definition that the language binding sees. Takes the dispatcher's lock. [any thread]
void record_late_operators();
// The same if an operator was defined since. For where a call meets no known tape: a library's operators that have no kernel for
// this device cost nothing there. [any thread]
void record_new_operators();

// The parts, in the order initialize() calls them.
void register_device();     // device.cpp: guard, hooks, allocator
void register_views();      // views.cpp: empty, views, resize, set_
void register_copies();     // copy.cpp: copies between devices, item
void register_rnn();        // rnn.cpp: LSTM and GRU cells and layers, on the CPU
void register_rnn_layers();  // rnn_layers.cpp: which layers are recorded as one operator
void register_linear();     // linear.cpp: autograd of linear layers as one operator
void register_nested();      // nested.cpp: what nn.TransformerEncoder makes in inference
void register_encoder();    // encoder.cpp: layers of attention that PyTorch hands over whole in inference
void register_optimizers();  // optimizers.cpp: learning rates of fused steps
void register_composed();   // composed.cpp: isin, histc of integers, as what they are made of
void register_tracer();     // registration.cpp: the boxed kernel for everything else
void register_autocast();   // autocast.cpp: which operators cast
void register_host_runner();  // host_runner.cpp: islands

}  // namespace lazyt::frontend
