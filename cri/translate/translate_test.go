package translate

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/names"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// facts are those of a machine and an image for the tests.
func facts() Facts {
	return Facts{
		Image: Image{
			ID: "sha512-" + strings.Repeat("0", 128), Entrypoint: []string{"/entry"}, Command: []string{"word"},
			Env: []Variable{{"PATH", "/bin"}, {"A", "image"}}, WorkingDir: "/work", User: "app", Group: "100", Groups: []int{7},
		},
		Account: func(user string) (Account, bool, error) {
			return Account{Group: "8", Groups: []int{9}}, user != "nobody-knows", nil
		},
		Resolve:      func(target string, _ []string) (string, error) { return path.Clean(target), nil },
		Files:        map[string]string{"/etc/hosts": "/sandbox/hosts"},
		Sources:      map[string]string{"/link": "/real"},
		Capabilities: []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN"}, Default: []string{"CAP_CHOWN", "CAP_KILL"}, LowestOOMScoreAdj: -1000,
		MountsBelow: func(path string) bool { return path == "/with-mounts" },
		SharedMount: func(path string) bool { return path == "/shared" },
		Cgroups:     Cgroups{Has: func(string) bool { return false }},
		SELinux:     true,
		ComposedDir: "/composed",
		LogPath:     "/var/log/pods/p/c/0.log",
	}
}

func config(edit func(*runtimeapi.ContainerConfig, *runtimeapi.LinuxContainerSecurityContext, *runtimeapi.LinuxContainerResources)) *runtimeapi.ContainerConfig {
	s, r := new(runtimeapi.LinuxContainerSecurityContext), new(runtimeapi.LinuxContainerResources)
	c := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "Web_1"}, Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: s, Resources: r},
	}
	if edit != nil {
		edit(c, s, r)
	}
	return c
}

func TestContainerIsAPodOfOneApp(t *testing.T) {
	pod, err := Container(config(func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
		c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/data", Readonly: true}}
		c.Stdin = true
	}), facts())
	if err != nil {
		t.Fatal(err)
	}
	var got podManifest
	if err := json.Unmarshal(pod.Manifest, &got); err != nil {
		t.Fatal(err)
	}
	want := podManifest{
		ACVersion: "0.8.11", ACKind: "PodManifest",
		Apps: []podApp{{
			Name: "web-1", Image: podImage{facts().Image.ID},
			App: section{
				Exec: []string{"/entry", "word"}, User: "app", Group: "100", SupplementaryGIDs: []int{7}, WorkingDirectory: "/work",
				Environment: []Variable{{"PATH", "/bin"}, {"A", "image"}},
				Isolators: []isolator{
					{"os/linux/capabilities-retain-set", map[string]any{"set": []any{"CAP_CHOWN", "CAP_KILL"}}},
					{"os/linux/seccomp-retain-set", map[string]any{"set": []any{"@appc.io/all", "add_key", "keyctl", "request_key"}}},
				},
			},
			Mounts:      []podMount{{"cri-0", "/data"}, {"cri-1", "/etc/hosts"}},
			Annotations: []Variable{{names.NumericIDsAnnotation, "true"}, {names.OwnPIDsAnnotation, "true"}, {names.StdinAnnotation, "stream"}},
		}},
		Volumes: []podVolume{
			{"cri-0", "host", "/real", true}, {"cri-1", "host", "/sandbox/hosts", false}, {"cri-log", "host", "/var/log/pods/p/c", false},
		},
		Isolators: []isolator{{"os/linux/namespaces", map[string]any{"net": "host", "ipc": "host", "uts": "host", "user": "host"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(pod.StagerConfig), `"path":"/volumes/cri-log/0.log"`) || pod.StopSignal != int(syscall.SIGTERM) || pod.User != nil {
		t.Errorf("%s, signal %d, user %v", pod.StagerConfig, pod.StopSignal, pod.User)
	}
}

func TestExecOverridesTheImages(t *testing.T) {
	for _, test := range []struct{ command, args, want []string }{
		{nil, nil, []string{"/entry", "word"}},
		{nil, []string{"a"}, []string{"/entry", "a"}},
		{[]string{"c"}, nil, []string{"c"}},
		{[]string{"c"}, []string{"a"}, []string{"c", "a"}},
	} {
		got, err := execOf(&runtimeapi.ContainerConfig{Command: test.command, Args: test.args}, facts().Image)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q %q: %q, %v", test.command, test.args, got, err)
		}
	}
}

func TestIsolatorsAreWhatIsAskedFor(t *testing.T) {
	type edit = func(*runtimeapi.ContainerConfig, *runtimeapi.LinuxContainerSecurityContext, *runtimeapi.LinuxContainerResources)
	capability := func(add, drop []string) edit {
		return func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: add, DropCapabilities: drop}
		}
	}
	for name, test := range map[string]struct {
		edit edit
		want string
	}{
		"add": {capability([]string{"NET_ADMIN"}, nil), `"os/linux/capabilities-retain-set","value":{"set":["CAP_CHOWN","CAP_KILL","CAP_NET_ADMIN"]}`},
		"ambient": {func(c *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.Capabilities = &runtimeapi.Capability{AddAmbientCapabilities: []string{"net_admin"}}
		}, `{"set":["CAP_CHOWN","CAP_KILL","CAP_NET_ADMIN"]}},{"name":"os/linux/capabilities-ambient-set","value":{"set":["CAP_NET_ADMIN"]}}`},
		"all ambient but one": {func(c *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.Capabilities = &runtimeapi.Capability{AddAmbientCapabilities: []string{"ALL"}, DropCapabilities: []string{"net_admin"}}
		}, `{"set":["CAP_CHOWN","CAP_KILL"]}},{"name":"os/linux/capabilities-ambient-set","value":{"set":["CAP_CHOWN","CAP_KILL"]}}`},
		"all ambient": {func(c *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.Capabilities = &runtimeapi.Capability{AddAmbientCapabilities: []string{"ALL"}}
		}, `"os/linux/capabilities-ambient-set","value":{"set":["CAP_CHOWN","CAP_KILL","CAP_NET_ADMIN"]}`},
		"add all":       {capability([]string{"ALL"}, []string{"KILL"}), `{"set":["CAP_CHOWN","CAP_NET_ADMIN"]}`},
		"drop all":      {capability(nil, []string{"all"}), `"os/linux/capabilities-remove-set","value":{"set":["CAP_CHOWN","CAP_KILL"]}`},
		"drop all, add": {capability([]string{"CAP_KILL"}, []string{"ALL"}), `{"set":["CAP_KILL"]}`},
		"limits": {func(_ *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, r *runtimeapi.LinuxContainerResources) {
			r.MemoryLimitInBytes, r.CpuQuota, r.CpuPeriod, r.CpuShares, r.OomScoreAdj = 1<<20, 50000, 100000, 1, -5
		}, `[{"name":"resource/memory","value":{"limit":"1048576"}},{"name":"resource/cpu","value":{"limit":"500m"}},{"name":"os/linux/cpu-shares","value":2},{"name":"os/linux/oom-score-adj","value":-5}`},
		"privileged": {func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.Privileged = true
		}, `[{"name":"os/linux/privileged","value":true}]`},
		"AppArmor": {func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "mine"}
		}, `{"name":"os/linux/apparmor-profile","value":{"name":"mine"}}`},
		"SELinux": {func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.SelinuxOptions = &runtimeapi.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0:c1"}
		}, `{"name":"os/linux/selinux-context","value":{"level":"s0:c1","role":"r","type":"t","user":"u"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := isolatorsOf(config(test.edit).GetLinux(), facts())
			text, jsonErr := json.Marshal(all)
			if err != nil || jsonErr != nil || !strings.Contains(string(text), test.want) {
				t.Errorf("%s, %v, want %s", text, err, test.want)
			}
		})
	}
}

func TestAScoreIsNotBelowTheLowest(t *testing.T) {
	for _, tt := range []struct{ asked, lowest, want int64 }{{-997, -1000, -997}, {-997, 30, 30}, {0, 30, 30}, {900, 30, 900}, {0, -1000, 0}} {
		got := int64(0) // of an app without the isolator
		for _, i := range resourceIsolators(&runtimeapi.LinuxContainerResources{OomScoreAdj: tt.asked}, tt.lowest) {
			got = i.Value.(int64)
		}
		if got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// A request of 16 MiB holds so many names. Comparing each with all others takes a minute.
func TestManyNamesTakeNoMinute(t *testing.T) {
	var names []string
	var variables []*runtimeapi.KeyValue
	for i := range 200_000 {
		names = append(names, fmt.Sprint("N", i))
		variables = append(variables, &runtimeapi.KeyValue{Key: names[i]})
	}
	begin := time.Now()
	pod, err := Container(config(func(c *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
		c.Envs = append(variables, &runtimeapi.KeyValue{Key: "N1", Value: []byte("last")})
		s.Capabilities = &runtimeapi.Capability{AddCapabilities: slices.Repeat([]string{"KILL"}, 50_000), DropCapabilities: append(names[:50_000], "KILL")}
	}), facts())
	if took := time.Since(begin); err != nil || took > 10*time.Second {
		t.Errorf("after %s: %v", took, err)
	}
	for _, want := range []string{`{"name":"N199999","value":""},{"name":"N1","value":"last"}]`, `{"set":["CAP_CHOWN","CAP_KILL"]}`} {
		if !strings.Contains(string(pod.Manifest), want) {
			t.Errorf("the manifest has no %s", want)
		}
	}
}

func TestWhatIsNotSupportedIsRefused(t *testing.T) {
	for want, edit := range map[string]func(*runtimeapi.ContainerConfig, *runtimeapi.LinuxContainerSecurityContext, *runtimeapi.LinuxContainerResources){
		`environment variable "a=b"`: func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			c.Envs = []*runtimeapi.KeyValue{{Key: "a=b"}}
		},
		"invalid UTF-8": func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			c.Envs = []*runtimeapi.KeyValue{{Key: "A", Value: []byte{0xff}}}
		},
		`user "nobody-knows"`: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.RunAsUsername = "nobody-knows"
		},
		"runAsGroup without a user": func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.RunAsGroup = &runtimeapi.Int64Value{Value: 1}
		},
		"is not privileged": func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/x", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}}
		},
		"/real is not on a shared mount": func(c *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.Privileged = true
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/x", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}}
		},
		"without readonly": func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/x", RecursiveReadOnly: true}}
		},
		"without private propagation": func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/x", RecursiveReadOnly: true, Readonly: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}}
		},
		`path "bin/ls"`: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.MaskedPaths = []string{"/proc/kcore", "bin/ls"}
		},
		`path "/."`: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.ReadonlyPaths = []string{"/sys/firmware", "/."}
		},
		"without its ID": func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET}
		},
		`label "::t:s0"`: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.SelinuxOptions = &runtimeapi.SELinuxOption{Type: "t", Level: "s0"}
		},
		`label ":::s0:c1"`: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			s.SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0:c1"}
		},
		"device at /x/disk inside the mount at /x": func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/x"}}
			c.Devices = []*runtimeapi.Device{{HostPath: "/link", ContainerPath: "/x/disk"}}
		},
		"(unified)": func(_ *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, r *runtimeapi.LinuxContainerResources) {
			r.Unified = map[string]string{"memory.high": "1"}
		},
		"memory and swap of 1 bytes": func(_ *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, r *runtimeapi.LinuxContainerResources) {
			r.MemorySwapLimitInBytes = 1
		},
		"no memory.memsw.limit_in_bytes": func(_ *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, r *runtimeapi.LinuxContainerResources) {
			r.MemorySwapLimitInBytes, r.MemoryLimitInBytes = 2<<20, 1<<20
		},
		"no hugetlb.2MB.limit_in_bytes": func(_ *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, r *runtimeapi.LinuxContainerResources) {
			r.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}}
		},
		`size "../2MB"`: func(_ *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext, r *runtimeapi.LinuxContainerResources) {
			r.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "../2MB"}}
		},
	} {
		_, err := Container(config(edit), facts())
		if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, want)
		}
	}
}

// A label has no effect where the kernel does not use SELinux, and none is no label.
func TestLabelsWithoutSELinux(t *testing.T) {
	without := facts()
	without.SELinux = false
	for _, test := range []struct {
		label *runtimeapi.SELinuxOption
		facts Facts
	}{
		{&runtimeapi.SELinuxOption{Type: "t"}, without},
		{&runtimeapi.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0"}, without},
		{new(runtimeapi.SELinuxOption), facts()},
	} {
		s := &runtimeapi.LinuxContainerSecurityContext{SelinuxOptions: test.label}
		all, err := isolatorsOf(&runtimeapi.LinuxContainerConfig{SecurityContext: s}, test.facts)
		isLabel := func(i isolator) bool { return i.Name == "os/linux/selinux-context" }
		if err != nil || slices.ContainsFunc(all, isLabel) {
			t.Errorf("%v: %v, %v", test.label, all, err)
		}
	}
}

// A container whose image has Docker's health check is not checked: probes are kubelet's.
func TestAnImagesHealthCheckIsNotMade(t *testing.T) {
	for _, checked := range []bool{false, true} {
		f := facts()
		f.Image.HealthCheck = checked
		pod, err := Container(config(nil), f)
		if got := strings.Contains(string(pod.Manifest), `{"name":"kurma.io/stager/health-cmd","value":"none"}`); got != checked || err != nil {
			t.Errorf("%t: %s, %v", checked, pod.Manifest, err)
		}
	}
}

func TestStopSignals(t *testing.T) {
	for _, test := range []struct {
		asked      runtimeapi.Signal
		image      string
		number     int
		annotation string
	}{
		{0, "", 15, ""},
		{0, "SIGQUIT", 3, ""},
		{0, "INT", 2, ""},
		{0, "9", 9, ""},
		{0, "SIGRTMIN+3", 37, ""},
		{runtimeapi.Signal_SIGNAL_SIGUSR1, "SIGQUIT", 10, "SIGUSR1"},
		{runtimeapi.Signal_SIGNAL_SIGRTMINPLUS1, "", 35, "SIGRTMIN+1"},
		{runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS2, "", 62, "SIGRTMAX-2"},
	} {
		number, annotation, err := stopSignal(test.asked, test.image)
		if err != nil || number != test.number || annotation != test.annotation {
			t.Errorf("%v, %q: %d, %q, %v", test.asked, test.image, number, annotation, err)
		}
	}
	for number, want := range map[int]runtimeapi.Signal{
		0: runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, 15: runtimeapi.Signal_SIGNAL_SIGTERM, 17: runtimeapi.Signal_SIGNAL_SIGCHLD,
		34: runtimeapi.Signal_SIGNAL_SIGRTMIN, 62: runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS2,
	} {
		if got := Signal(number); got != want {
			t.Errorf("%d: %s, want %s", number, got, want)
		}
	}
	if _, _, err := stopSignal(0, "SIGNOTHING"); !errors.Is(err, errRefused) {
		t.Errorf("unknown signal: %v", err)
	}
}

func TestChangesOfLimits(t *testing.T) {
	r := &runtimeapi.LinuxContainerResources{CpuQuota: 20000, CpuPeriod: 100000, CpuShares: 1024, MemoryLimitInBytes: -1, CpusetCpus: "0-1"}
	for unified, want := range map[bool][]records.Setting{
		false: {{File: "cpuset.cpus", Text: "0-1"}, {File: "cpu.shares", Text: "1024"}, {File: "cpu.cfs_period_us", Text: "100000"}, {File: "cpu.cfs_quota_us", Text: "20000"}, {File: "memory.limit_in_bytes", Text: "-1"}},
		true:  {{File: "cpuset.cpus", Text: "0-1"}, {File: "cpu.weight", Text: "100"}, {File: "cpu.max", Text: "20000 100000"}, {File: "memory.max", Text: "max"}},
	} {
		got, err := Changes(r, Cgroups{Unified: unified})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestSwapAndHugePages(t *testing.T) {
	r := &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 1 << 20, MemorySwapLimitInBytes: 3 << 20,
		HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB"}},
	}
	pages := func(end string) []records.Setting {
		return []records.Setting{{File: "hugetlb.2MB" + end, Text: "4194304"}, {File: "hugetlb.1GB" + end, Text: "0"}}
	}
	for unified, want := range map[bool][]records.Setting{
		false: append([]records.Setting{
			{File: "memory.memsw.limit_in_bytes", Text: "-1"}, {File: "memory.limit_in_bytes", Text: "1048576"}, {File: "memory.memsw.limit_in_bytes", Text: "3145728"},
		}, pages(".limit_in_bytes")...),
		true: append([]records.Setting{{File: "memory.max", Text: "1048576"}, {File: "memory.swap.max", Text: "2097152"}}, pages(".max")...),
	} {
		got, err := Changes(r, Cgroups{unified, func(string) bool { return true }})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	none := &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 1 << 20, MemorySwapLimitInBytes: 1 << 20, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}},
	}
	if l, err := limitsOf(none, Cgroups{false, func(string) bool { return false }}); len(l.Memory) > 0 || err != nil {
		t.Errorf("no swap and no pages, where none can be limited: %v, %v", l, err)
	}
}

func TestMountsInsideOthersAreComposed(t *testing.T) {
	f := facts()
	f.Sources = map[string]string{"/a": "/a", "/b": "/b", "/c": "/c", "/d": "/d"}
	f.Files = map[string]string{"/data/hosts": "/hosts"}
	binds, err := bindsOf(&runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{
		{HostPath: "/c", ContainerPath: "/data/conf/deep/"},
		{HostPath: "/b", ContainerPath: "/data/conf", Readonly: true},
		{HostPath: "/a", ContainerPath: "/data", Readonly: true},
		{HostPath: "/d", ContainerPath: "/data-too"},
	}}, f)
	if err != nil {
		t.Fatal(err)
	}
	if err := resolveTargets(binds, f.Resolve); err != nil {
		t.Fatal(err)
	}
	var pod Pod
	volumes, mounts, rules := pod.mount(treesOf(binds), f)
	want := []records.Tree{{
		Name: "0", Bind: records.Bind{Source: "/a", Target: "/data", ReadOnly: true},
		Inner: []records.Bind{{Source: "/b", Target: "conf", ReadOnly: true}, {Source: "/c", Target: "conf/deep"}, {Source: "/hosts", Target: "hosts"}},
	}}
	if diff := cmp.Diff(want, pod.Composed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]podVolume{{"cri-0", "host", "/composed/0", false}, {"cri-1", "host", "/d", false}}, volumes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]podMount{{"cri-0", "/data"}, {"cri-1", "/data-too"}}, mounts); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"cri-1": "private"}, rules.propagation); diff != "" {
		t.Error(diff)
	}
}

// A mount is inside another one where the image's links lead it, unless a mount covers the links.
func TestMountsFollowTheImagesLinks(t *testing.T) {
	resolve := func(target string, mounted []string) (string, error) { // var/run>/run
		if target == "/loop" {
			return "", errors.New("too many links")
		}
		if below, linked := strings.CutPrefix(target, "/var/run"); linked && !slices.Contains(mounted, "/var") {
			return "/run" + below, nil
		}
		return target, nil
	}
	for targets, want := range map[string]string{
		"/run /var/run/secrets/x":      "/run[secrets/x]",
		"/var/run/secrets/x /run":      "/run[secrets/x]",
		"/var/run/secrets/x /var/run":  "/run[secrets/x]",
		"/var/run/secrets/x /var":      "/var[run/secrets/x]",
		"/var/run/secrets/x /run /var": "/run[] /var[run/secrets/x]",
		"/var/run/secrets/x /runs":     "/run/secrets/x[] /runs[]",
		"/loop":                        "mount target /loop: too many links",
	} {
		var binds []records.Bind
		for target := range strings.FieldsSeq(targets) {
			binds = append(binds, records.Bind{Target: target})
		}
		var got []string
		if err := resolveTargets(binds, resolve); err != nil {
			got = append(got, err.Error())
			binds = nil
		}
		for _, tree := range treesOf(binds) {
			var inner []string
			for _, b := range tree.Inner {
				inner = append(inner, b.Target)
			}
			got = append(got, tree.Target+"["+strings.Join(inner, " ")+"]")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", targets, got, want)
		}
	}
}

// A mount that the stager's volumes do not express is one of the daemon's, or is composed with those inside.
func TestMountsPropagateAsAsked(t *testing.T) {
	const private, slave, shared = records.Private, records.Slave, records.Shared
	for name, test := range map[string]struct {
		tree     records.Tree
		top      bool
		readOnly bool
		word     string
	}{
		"private":                      {records.Tree{Bind: records.Bind{Propagation: private}}, false, false, "private"},
		"slave":                        {records.Tree{Bind: records.Bind{Propagation: slave}}, false, false, ""},
		"shared":                       {records.Tree{Bind: records.Bind{Propagation: shared}}, false, false, "shared"},
		"read-only":                    {records.Tree{Bind: records.Bind{ReadOnly: true}}, false, true, "private"},
		"read-only, mounts below":      {records.Tree{Bind: records.Bind{Source: "/with-mounts", ReadOnly: true}}, true, false, "private"},
		"recursively, mounts below":    {records.Tree{Bind: records.Bind{Source: "/with-mounts", ReadOnly: true, Recursive: true}}, false, true, "private"},
		"read-only and slave":          {records.Tree{Bind: records.Bind{ReadOnly: true, Propagation: slave}}, true, false, ""},
		"read-only and shared":         {records.Tree{Bind: records.Bind{ReadOnly: true, Propagation: shared}}, true, false, "shared"},
		"shared one in a private one":  {records.Tree{Inner: []records.Bind{{Propagation: shared}}}, false, false, "shared"},
		"private one in a private one": {records.Tree{Inner: []records.Bind{{}}}, false, false, ""},
	} {
		var p Pod
		volumes, _, rules := p.mount([]records.Tree{test.tree}, facts())
		if (len(p.HostVolumes.ReadOnlyTop) > 0) != test.top || rules.propagation["cri-0"] != test.word || (len(p.HostVolumes.Shared) > 0) != (test.word == "shared") {
			t.Errorf("%s: %v, %+v", name, rules, p.HostVolumes)
		}
		if volumes[0].ReadOnly != test.readOnly || (len(p.Composed) > 0) != (len(test.tree.Inner) > 0) {
			t.Errorf("%s: %+v, composed %v", name, volumes, p.Composed)
		}
	}
}

// Whoever can choose a mount's path, or make a node there, has no device by that.
func TestOnlyDevicesAreDevices(t *testing.T) {
	config := &runtimeapi.ContainerConfig{
		Mounts:  []*runtimeapi.Mount{{HostPath: "/dev/sda", ContainerPath: "/a"}},
		Devices: []*runtimeapi.Device{{HostPath: "/dev/sda", ContainerPath: "/b", Permissions: "r"}},
	}
	binds, err := bindsOf(config, Facts{Sources: map[string]string{"/dev/sda": "/dev/sda"}})
	if err != nil {
		t.Fatal(err)
	}
	var p Pod
	for n, want := range map[int][]string{1: {}, 2: {"cri-1"}} {
		if _, _, rules := p.mount(treesOf(binds)[:n], facts()); rules.devices == nil || !slices.Equal(rules.devices, want) {
			t.Errorf("%d mounts: %#v, want %v", n, rules.devices, want)
		}
	}
}
