package server

import (
	"testing"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/metrics"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The default interface is the one by which the sandbox is connected, wherever the kernel lists it. Without it there is
// no usage: kubelet panics for one without a default interface.
func TestTheDefaultInterfaceIsTheSandboxes(t *testing.T) {
	of := func(names ...string) (all []metrics.Interface) {
		for _, name := range names {
			all = append(all, metrics.Interface{Name: name, Columns: make([]uint64, 16)})
		}
		return all
	}
	kurma := records.Sandbox{Attachments: []networks.Attachment{{Interface: "veth1"}, {Interface: "eth0"}}}
	for _, test := range []struct {
		sandbox records.Sandbox
		names   []string
		want    string // "" for no usage
	}{
		{records.Sandbox{}, []string{"tunl0", "eth0", "sit0"}, "eth0"},
		{kurma, []string{"eth0", "veth1"}, "veth1"},
		{records.Sandbox{}, []string{"tunl0"}, ""},
		{records.Sandbox{}, nil, ""},
	} {
		usage := networkUsage(of(test.names...), sandboxes.Interface(test.sandbox), 1)
		if got := usage.GetDefaultInterface().GetName(); got != test.want || (usage == nil) != (test.want == "") {
			t.Errorf("%q: %v", test.names, usage)
		}
		if usage != nil && len(usage.Interfaces) != len(test.names)-1 {
			t.Errorf("%q: %v", test.names, usage.Interfaces)
		}
	}
}

// However many sizes are not known yet, a call waits for them once.
func TestACallWaitsOnceForSizes(t *testing.T) {
	dir := t.TempDir()
	store, err := records.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{records: store, pods: pods.Open(dir, "test")}
	const many = 30
	for range many {
		c := records.Container{ID: records.NewID(), PodUUID: uuid.NewString()}
		hold(t, writePod(t, dir, c.PodUUID, pods.State{Phase: pods.Running}))
		if err := store.WriteContainer(c); err != nil {
			t.Fatal(err)
		}
	}
	s.disk.walks.Lock() // a measurement takes its time
	defer s.disk.walks.Unlock()
	begin := time.Now()
	r, err := s.ListContainerStats(t.Context(), new(runtimeapi.ListContainerStatsRequest))
	if took := time.Since(begin); err != nil || len(r.Stats) != many || took > many*diskUsageWait/2 {
		t.Errorf("%d containers after %s, %v", len(r.Stats), took, err)
	}
}

// Swap is reported where the kernel counts it.
func TestSwapOfContainers(t *testing.T) {
	for text, want := range map[string]*runtimeapi.SwapUsage{
		"":       nil,
		"8192\n": {Timestamp: 1, SwapUsageBytes: &runtimeapi.UInt64Value{Value: 8192}},
	} {
		group := &cgroups.Group{Path: "pod", Hierarchies: []cgroups.Hierarchy{{Mount: t.TempDir(), V2: true}}}
		if want != nil {
			writeFiles(t, group.Dir(group.Hierarchies[0]), map[string]string{"memory.swap.current": text})
		}
		if got := swapUsage(metrics.FilesOf(group, ""), 1); !proto.Equal(got, want) {
			t.Errorf("%q: %v", text, got)
		}
	}
}
