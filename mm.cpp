#include <dnnl.hpp>
#include <chrono>
#include <cstdio>
#include <vector>
#include <string>
#include <algorithm>
#include <cstdlib>
#include <cstring>
using namespace dnnl; using tag=memory::format_tag; using dt=memory::data_type;
double now(){return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();}
engine eng(engine::kind::cpu,0); 
template<class F> double best(F f,int n=30){std::vector<double> t;for(int i=0;i<n;i++){double b=now();f();t.push_back(now()-b);}std::sort(t.begin(),t.end());return t[n/4]*1e3;}
int main(){
 stream s(eng);
 int shapes[][3]={{512,256,1024},{512,1024,256},{512,256,768},{512,256,256},{1024,512,256},{256,512,1024},{768,512,256},{256,512,256},{512,512,512},{1024,1024,1024}};
 for(auto&sh:shapes){long M=sh[0],K=sh[1],N=sh[2];double fl=2.0*M*K*N;
  auto run=[&](tag a, tag b){
    memory::desc ad({M,K},dt::f32,a),bd({K,N},dt::f32,b),cd({M,N},dt::f32,tag::ab);
    matmul::primitive_desc pd(eng,ad,bd,cd); 
    memory A(pd.src_desc(),eng),B(pd.weights_desc(),eng),C(cd,eng);
    for(size_t i=0;i<A.get_desc().get_size()/4;i++)((float*)A.get_data_handle())[i]=1e-3f*(i%7);
    for(size_t i=0;i<B.get_desc().get_size()/4;i++)((float*)B.get_data_handle())[i]=1e-3f*(i%5);
    matmul p(pd); double t=best([&]{p.execute(s,{{DNNL_ARG_SRC,A},{DNNL_ARG_WEIGHTS,B},{DNNL_ARG_DST,C}});s.wait();});
    return t;};
  auto reo=[&](tag from){ memory::desc ad({M,K},dt::f32,tag::ab),bd({K,N},dt::f32,tag::any),cd({M,N},dt::f32,tag::ab);
    matmul::primitive_desc pd(eng,ad,bd,cd); memory::desc fd({K,N},dt::f32,from); memory F(fd,eng),T(pd.weights_desc(),eng);
    memset(F.get_data_handle(),0,K*N*4);
    reorder r(F,T); return best([&]{r.execute(s,F,T);s.wait();});};
  double t1=run(tag::ab,tag::ab),t2=run(tag::ab,tag::ba),t3=run(tag::ba,tag::ab),t4=run(tag::ab,tag::any), t5=run(tag::ba,tag::any), t6=run(tag::ba,tag::ba);
  printf("%ldx%ldx%ld  ab,ab %.3f (%.0f)  ab,ba %.3f (%.0f)  ba,ab %.3f (%.0f) ba,ba %.3f(%.0f) ab,packed %.3f (%.0f) ba,packed %.3f (%.0f) reorder ab %.3f ba %.3f\n",M,K,N,t1,fl/t1/1e6,t2,fl/t2/1e6,t3,fl/t3/1e6,t6,fl/t6/1e6,t4,fl/t4/1e6,t5,fl/t5/1e6,reo(tag::ab),reo(tag::ba));
 }
}
