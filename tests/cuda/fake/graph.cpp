// Graphs: nodes in an order that their dependencies allow; a launch runs them one after the other.
#include <algorithm>
#include <utility>

#include "fake.h"

namespace {

using namespace fake;

CUresult run_node(const CUgraphNode_st& node) {
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return run_launch(node.launch);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return run_copy(node.copy);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      for (const CUgraphNode_st* child : node.children)
        if (const CUresult bad = run_node(*child)) return bad;
      return CUDA_SUCCESS;
    default: return CUDA_SUCCESS;
  }
}

CUgraph make_graph(CUctx_st* context) {
  auto* graph = new CUgraph_st{context, {}};
  add_handle(graph);
  context->handles.insert(graph);
  return graph;
}

CUgraphNode add_node(CUgraph graph, const CUgraphNode* after, size_t count, CUgraphNodeType type, const char* name) {
  CUgraphNode node = make_node(type);
  for (size_t i = 0; i < count; ++i) {
    if (std::find(graph->nodes.begin(), graph->nodes.end(), after[i]) == graph->nodes.end())
      misuse(name, "a dependency is no node of the graph");
    node->after.push_back(after[i]);
  }
  graph->nodes.push_back(node);
  return node;
}

CUgraphNode_st& node_of(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, const char* name) {
  require_handle(exec, name);
  for (size_t i = 0; i < exec->originals.size(); ++i)
    if (exec->originals[i] == node) {
      if (exec->nodes[i].type != type) misuse(name, "a node of another kind");
      return exec->nodes[i];
    }
  misuse(name, "a node that the graph was not made of");
}

CUresult launch_of(const CUDA_KERNEL_NODE_PARAMS* p, const char* name, Launch& out) {
  const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ}, block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
  return make_launch(p->func, grid, block, p->sharedMemBytes, p->kernelParams, name, out);
}

Copy copy_of(const CUDA_MEMCPY3D* p, const char* name) {
  const bool flat = p->Height == 1 && p->Depth == 1 && !p->srcXInBytes && !p->dstXInBytes;
  if (!flat || p->srcMemoryType != CU_MEMORYTYPE_DEVICE || p->dstMemoryType != CU_MEMORYTYPE_DEVICE)
    misuse(name, "only flat copies on the device are known here");
  require_device_bytes(p->srcDevice, p->WidthInBytes, name);
  require_device_bytes(p->dstDevice, p->WidthInBytes, name);
  return {reinterpret_cast<void*>(p->dstDevice), reinterpret_cast<const void*>(p->srcDevice), p->WidthInBytes};
}

bool same_shape(const std::vector<CUgraphNode>& a, const std::vector<CUgraphNode>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](CUgraphNode x, CUgraphNode y) {
    return x->type == y->type && x->launch.function == y->launch.function && same_shape(x->children, y->children);
  });
}

}  // namespace

// Kept as long as the process: instantiated graphs and child nodes share them.
CUgraphNode fake::make_node(CUgraphNodeType type) {
  static auto& all = *new std::deque<CUgraphNode_st>;
  all.emplace_back().type = type;
  return &all.back();
}

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  const Lock lock(state().mutex);
  if (const CUresult bad = check_stream(stream, "cuStreamBeginCapture")) return bad;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = make_graph(stream->context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* out) {
  const Lock lock(state().mutex);
  if (const CUresult bad = check_stream(stream, "cuStreamEndCapture")) return bad;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  *out = std::exchange(stream->capture, nullptr);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphCreate(CUgraph* out, unsigned int) {
  const Lock lock(state().mutex);
  CUresult result;
  CUctx_st* context = current(result);
  if (!context) return result;
  *out = make_graph(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  const Lock lock(state().mutex);
  require_handle(graph, "cuGraphDestroy");
  drop_handle(graph);
  graph->context->handles.erase(graph);
  delete graph;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS* parameters) {
  const Lock lock(state().mutex);
  require_handle(graph, "cuGraphAddKernelNode");
  Launch launch;
  if (const CUresult bad = launch_of(parameters, "cuGraphAddKernelNode", launch)) return bad;
  *out = add_node(graph, after, count, CU_GRAPH_NODE_TYPE_KERNEL, "cuGraphAddKernelNode");
  (*out)->launch = std::move(launch);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                                      const CUDA_MEMCPY3D* parameters, CUcontext) {
  const Lock lock(state().mutex);
  require_handle(graph, "cuGraphAddMemcpyNode");
  const Copy copy = copy_of(parameters, "cuGraphAddMemcpyNode");
  *out = add_node(graph, after, count, CU_GRAPH_NODE_TYPE_MEMCPY, "cuGraphAddMemcpyNode");
  (*out)->copy = copy;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count, CUgraph child) {
  const Lock lock(state().mutex);
  require_handle(graph, "cuGraphAddChildGraphNode");
  require_handle(child, "cuGraphAddChildGraphNode");
  *out = add_node(graph, after, count, CU_GRAPH_NODE_TYPE_GRAPH, "cuGraphAddChildGraphNode");
  (*out)->children = child->nodes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
  const Lock lock(state().mutex);
  require_handle(graph, "cuGraphInstantiate");
  ++state().counts.instantiated;
  auto* exec = new CUgraphExec_st;
  exec->context = graph->context;
  exec->originals = graph->nodes;
  for (CUgraphNode node : graph->nodes) exec->nodes.push_back(*node);
  add_handle(exec);
  graph->context->handles.insert(exec);
  *out = exec;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) {
  const Lock lock(state().mutex);
  require_handle(exec, "cuGraphExecDestroy");
  drop_handle(exec);
  exec->context->handles.erase(exec);
  delete exec;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  const Lock lock(state().mutex);
  CUgraphNode_st& mine = node_of(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, "cuGraphExecKernelNodeSetParams");
  ++state().counts.graph_updates;
  Launch launch;
  if (const CUresult bad = launch_of(parameters, "cuGraphExecKernelNodeSetParams", launch)) return bad;
  mine.launch = std::move(launch);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* parameters, CUcontext) {
  const Lock lock(state().mutex);
  CUgraphNode_st& mine = node_of(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, "cuGraphExecMemcpyNodeSetParams");
  ++state().counts.graph_updates;
  const Copy copy = copy_of(parameters, "cuGraphExecMemcpyNodeSetParams");
  // As the driver: a copy's length is part of the graph's shape.
  if (copy.bytes != mine.copy.bytes) return CUDA_ERROR_INVALID_VALUE;
  mine.copy = copy;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  const Lock lock(state().mutex);
  CUgraphNode_st& mine = node_of(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, "cuGraphExecChildGraphNodeSetParams");
  require_handle(child, "cuGraphExecChildGraphNodeSetParams");
  ++state().counts.graph_updates;
  if (!same_shape(mine.children, child->nodes)) return CUDA_ERROR_INVALID_VALUE;
  mine.children = child->nodes;
  return CUDA_SUCCESS;
}

// What is updated later changes no launch that was made before.
CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const Lock lock(state().mutex);
  require_handle(exec, "cuGraphLaunch");
  if (const CUresult bad = check_stream(stream, "cuGraphLaunch")) return bad;
  if (exec->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  ++state().counts.graph_launches;
  enqueue(stream, [nodes = exec->nodes] {
    for (const CUgraphNode_st& node : nodes)
      if (const CUresult bad = run_node(node)) return bad;
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
