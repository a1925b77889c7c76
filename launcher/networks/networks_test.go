package networks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parseAll(t *testing.T, entries ...string) []Network {
	t.Helper()
	var raw []json.RawMessage
	for _, e := range entries {
		raw = append(raw, json.RawMessage(e))
	}
	all, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestParseKeepsAnEntryByteForByte(t *testing.T) {
	const text = "{ \"name\":\"n\",\n\t\"aci\": \"file:///x.aci\", \"containerInterface\": \"veth{{shortuuid}}\", \"default\": true, \"mtu\": 1e3, \"ü\": \"\\u00fc<\" }"
	n := parseAll(t, text)[0]
	want := Network{Name: "n", ACI: "file:///x.aci", Interface: "veth{{shortuuid}}", Default: true, Entry: text}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ entry, words string }{
		{`[]`, "must be an object"},
		{`null`, "must be an object"},
		{`{"aci": "x"}`, "name: missing"},
		{`{"name": "a/b", "aci": "x"}`, `name: "a/b"`},
		{`{"name": "host", "aci": "x"}`, `name: "host"`},
		{`{"name": 5, "aci": "x"}`, "name: 5"},
		{`{"name": "a"}`, "aci: missing"},
		{`{"name": "a", "aci": "x", "runtimeConfig": {}}`, "runtimeConfig"},
		{`{"name": "a", "aci": "x", "containerInterface": "{{"}`, "containerInterface"},
		{`{"name": "a", "aci": "x", "containerInterface": "{{unknown}}"}`, "containerInterface"},
		{`{"name": "a", "aci": "x", "containerInterface": "eth{{uuid}}"}`, "longer than 15 bytes"},
		{`{"name": "a", "aci": "x", "containerInterface": "{{random 33}}"}`, "want 1 to 32"},
		{`{"name": "a", "aci": "x", "containerInterface": "a:b"}`, "Linux refuses the name"},
		{`{"name": "a", "aci": "x", "containerInterface": "lo"}`, "every pod's loopback device"},
	} {
		if _, err := Parse([]json.RawMessage{json.RawMessage(tt.entry)}); err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, want %q", tt.entry, err, tt.words)
		}
	}
	twice := json.RawMessage(`{"name": "a", "aci": "x"}`)
	if _, err := Parse([]json.RawMessage{twice, twice}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a name that is given twice: %v", err)
	}
}

// A folder's networks follow those of the configuration, which replace them by their names.
func TestReadFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("2.json", "{\"name\": \"b\", \"aci\": \"x\"}\n")
	write("1.json", `{"name": "a", "aci": "x", "default": true}`)
	write("3.json~", "{")
	write(".4.json", "{")
	own := parseAll(t, `{"name": "b", "aci": "own"}`)
	all, err := ReadFolder(dir, own)
	if err != nil || len(all) != 2 || all[0] != own[0] || all[1].Name != "a" || !all[1].Default {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := ReadFolder(dir, nil); err != nil || len(all) != 2 || all[1].Entry != `{"name": "b", "aci": "x"}` {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := ReadFolder(filepath.Join(dir, "none"), own); err != nil || len(all) != 1 {
		t.Errorf("without the folder: %+v, %v", all, err)
	}
	for text, want := range map[string]string{
		"{":                             "4.json: ",
		`{"name": "c"}`:                 "4.json: aci: missing in network \"c\"",
		`{"name": "a", "aci": "twice"}`: `4.json: name "a" is given twice`,
	} {
		write("4.json", text)
		if _, err := ReadFolder(dir, own); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestInterfaceNames(t *testing.T) {
	const uuid = "146d7cef-fbf6-41da-a2f8-eba218597f9c"
	for _, tt := range []struct {
		text, want string
		used       []string
	}{
		{"", "", nil},
		{"eth0", "eth0", nil},
		{"veth{{shortuuid}}", "veth146d7cef", nil},
		{"eth{{num}}", "eth2", []string{"a", "b"}},
		{`{{slice uuid 0 4}}`, "146d", nil},
	} {
		got, err := interfaceName(tt.text, uuid, tt.used)
		if err != nil || got != tt.want {
			t.Errorf("%q: %q, %v, want %q", tt.text, got, err, tt.want)
		}
	}
	if _, err := interfaceName("eth0", uuid, []string{"eth0"}); err == nil {
		t.Error("a name that another network has is accepted")
	}
	name, err := interfaceName("{{random 10}}", uuid, nil)
	if err != nil || len(name) != 10 {
		t.Errorf("random: %q, %v", name, err)
	}
}

func TestParseRequest(t *testing.T) {
	const text = "net:ips=10.0.0.5/24,ips=fd00::5,mac=0A:58:0a:00:00:05,dns=1.1.1.1,search=example.com,dnsOption=ndots:2,dnsOption=edns0," +
		"ipRanges=10.1.2.3/16,ipRanges=fd00::/64;rangeStart=fd00::5;rangeEnd=fd00::9;gateway=fd00::1+fd01::/64,label=a=b=c,args=IP=10.0.0.9,args=K=v"
	r, err := ParseRequest(text)
	want := Request{
		Name: "net", Text: text, IPs: []string{"10.0.0.5/24", "fd00::5"}, MAC: "0a:58:0a:00:00:05",
		DNS:    DNS{Nameservers: []string{"1.1.1.1"}, Search: []string{"example.com"}, Options: []string{"ndots:2", "edns0"}},
		Labels: map[string]string{"a": "b=c"}, Args: []string{"IP=10.0.0.9", "K=v"},
		IPRanges: [][]IPRange{
			{{Subnet: "10.1.0.0/16"}},
			{{Subnet: "fd00::/64", Start: "fd00::5", End: "fd00::9", Gateway: "fd00::1"}, {Subnet: "fd01::/64"}},
		},
	}
	if diff := cmp.Diff(want, r); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, text := range []string{
		"", "host", "a b", "n:x", "n:x=y", "n:ips=", "n:ips=1.2", "n:mac=1", "n:mac=0a:58:0a:00:00:05,mac=0a:58:0a:00:00:05", "n:dns=x", "n:ipRanges=10.0.0.1", "n:label=a", "n:label=a=1,label=a=2", "n:args=K", "n:args==V",
		"n:args=K=V;L=W", "n:args=K=V,args=K=W", "n:args=K.L=V", "n:alias=a", "n:ipRanges=10.0.0.0/8+", "n:ipRanges=10.0.0.0/8;",
		"n:ipRanges=10.0.0.0/8;start=10.0.0.1", "n:ipRanges=10.0.0.0/8;gateway=11.0.0.1", "n:ipRanges=10.0.0.0/8;gateway=x",
		"n:ipRanges=10.0.0.0/8;rangeEnd=10.0.0.1;rangeEnd=10.0.0.1", "n:dnsOption=",
	} {
		if _, err := ParseRequest(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestAttachAddsOnlyWhatCapabilitiesAskFor(t *testing.T) {
	const plain = `{"name":"plain","aci":"x" }`
	const capable = `{"name":"capable","aci":"x","plugins":[{"type":"a"},{"type":"b","capabilities":{"portMappings":true,"bandwidth":true,"ips":true,"mac":false}}]}`
	const every = `{"name":"every","aci":"x","type":"a","capabilities":{"ipRanges":true,"dns":true,"mac":true}}`
	all := parseAll(t, plain, capable, every)
	pod := PodOptions{
		UUID:  "u",
		Ports: []PortMapping{{HostPort: 80, ContainerPort: 8080, Protocol: "tcp"}}, Bandwidth: &Bandwidth{IngressRate: 8},
	}
	for _, tt := range []struct {
		name, request, config string
		published             bool
	}{
		{"nothing", "plain", plain, false},
		{"data", "capable:ips=10.0.0.5", capable[:len(capable)-1] + `,"runtimeConfig":{"bandwidth":{"ingressRate":8},"ips":["10.0.0.5"],"portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"tcp"}]}}`, true},
		{"name servers alone", "every:dns=1.1.1.1", every[:len(every)-1] + `,"runtimeConfig":{"dns":{"servers":["1.1.1.1"]}}}`, false},
		{"the other capabilities", "every:ipRanges=10.1.0.0/16;rangeStart=10.1.0.9+10.2.0.0/16,ipRanges=fd00::/64,dns=1.1.1.1,dnsOption=ndots:2,search=a.example,mac=0a:58:0a:00:00:05", every[:len(every)-1] +
			`,"runtimeConfig":{"dns":{"servers":["1.1.1.1"],"searches":["a.example"],"options":["ndots:2"]},"ipRanges":[[{"subnet":"10.1.0.0/16","rangeStart":"10.1.0.9"},{"subnet":"10.2.0.0/16"}],[{"subnet":"fd00::/64"}]],"mac":"0a:58:0a:00:00:05"}}`, false},
		{"args", "plain:ips=10.0.0.5,label=k=v", `{"name":"plain","aci":"x" ,"args":{"cni":{"ips":["10.0.0.5"],"labels":[{"key":"k","value":"v"}]}}}`, false},
	} {
		r, err := ParseRequest(tt.request)
		if err != nil {
			t.Fatal(err)
		}
		got, published, err := Attach(all, []Request{r}, pod)
		if err != nil || published != tt.published {
			t.Errorf("%s: published %v, %v", tt.name, published, err)
			continue
		}
		if got[0].Config != tt.config {
			t.Errorf("%s:\n%s, want\n%s", tt.name, got[0].Config, tt.config)
		}
	}
	for _, option := range []string{"mac=0a:58:0a:00:00:05", "ipRanges=10.0.0.0/8"} {
		r, _ := ParseRequest("capable:" + option)
		if _, _, err := Attach(all, []Request{r}, pod); err == nil || !strings.Contains(err.Error(), "capability") {
			t.Errorf("%s: %v, want an error about the capability", option, err)
		}
	}
	twice := []Request{{Name: "plain"}, {Name: "plain"}}
	if _, _, err := Attach(all, twice, pod); err == nil {
		t.Error("a network that is given twice is accepted")
	}
}

func TestAttachMergesTheEntrysOwnArgs(t *testing.T) {
	for args, want := range map[string]string{
		`{"cni":{"ips":["1.1.1.1"],"own":1},"other":2}`: `{"cni":{"ips":["10.0.0.5"],"own":1},"other":2}`,
		`null`:                   `{"cni":{"ips":["10.0.0.5"]}}`,
		`{"cni":null,"other":2}`: `{"cni":{"ips":["10.0.0.5"]},"other":2}`,
	} {
		all := parseAll(t, `{"name":"n","aci":"x","args":`+args+`}`)
		r, _ := ParseRequest("n:ips=10.0.0.5")
		got, _, err := Attach(all, []Request{r}, PodOptions{UUID: "u"})
		if err != nil {
			t.Fatal(err)
		}
		var have struct {
			Name string
			Args json.RawMessage
		}
		if err := json.Unmarshal([]byte(got[0].Config), &have); err != nil {
			t.Fatal(err)
		}
		if have.Name != "n" || string(have.Args) != want {
			t.Errorf("args %s: %s, want args %s", args, got[0].Config, want)
		}
	}
}

func TestParseResult(t *testing.T) {
	for _, tt := range []struct{ name, output, want string }{
		{"empty", " \n", `{}`},
		{"old", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]},"dns":{}}`, `{"ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]}}`},
		{
			"new", `{"cniVersion":"1.0.0","interfaces":[{}],"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1","interface":0},{"address":"fd00::2/64"},{"address":"10.1.0.2/24"}],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0","gw":"fd00::1"}],"dns":{"nameservers":["1.1.1.1"]}}`,
			`{"ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]},"ip6":{"ip":"fd00::2/64","routes":[{"dst":"::/0","gw":"fd00::1"}]},"dns":{"nameservers":["1.1.1.1"]}}`,
		},
	} {
		r, err := parseResult([]byte(tt.output))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got, _ := json.Marshal(r); string(got) != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	for _, output := range []string{"garbage", "[]", `{"ip4":`, `{"ip4":{"ip":"10.0.0.2"}}`, `{"ip4":{"ip":"fd00::2/64"}}`, `{"ips":[{"address":"x"}]}`, `{"ip4":"10.0.0.2/24"}`} {
		if _, err := parseResult([]byte(output)); err == nil {
			t.Errorf("%s is accepted", output)
		}
	}
}

func TestAddresses(t *testing.T) {
	both := Result{IP4: &IPConfig{IP: "10.0.0.2/24"}, IP6: &IPConfig{IP: "fd00::2/64"}}
	if got := fmt.Sprint(both.Addresses(), Result{IP4: both.IP4}.Addresses(), Result{}.Addresses()); got != "[fd00::2 10.0.0.2] [10.0.0.2] []" {
		t.Errorf("addresses %s", got)
	}
}

func TestNamesOfNetworks(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "0.b_C-d": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "-a": false, ".a": false, "a/b": false, "a b": false, "a\n": false, "é": false, HostName: false, NoneName: false,
	} {
		if IsName(name) != want {
			t.Errorf("%q is a name: %t", name, !want)
		}
	}
}

// The arguments of a request are the variable CNI_ARGS of add and del, and an address among them is the pod's.
func TestArgsAreAVariableOfThePlugins(t *testing.T) {
	all := parseAll(t, `{"name":"n","aci":"x"}`)
	for options, want := range map[string]string{
		"": "", ":args=IP=10.0.0.9,args=K=v": "IgnoreUnknown=1;IP=10.0.0.9;K=v", ":args=IgnoreUnknown=0,args=K=v": "IgnoreUnknown=0;K=v",
	} {
		r, err := ParseRequest("n" + options)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := Attach(all, []Request{r}, PodOptions{UUID: "u"})
		if err != nil || got[0].Args != want {
			t.Fatalf("%s: %q, %v, want %q", options, got[0].Args, err, want)
		}
		if asks := len(got[0].Addresses()) == 1; asks != strings.Contains(want, "IP=") {
			t.Errorf("%s: addresses %v", options, got[0].Addresses())
		}
		env := call(got[0], "u", "/ns").Env
		if diff := cmp.Diff(map[bool][]string{true: {"CNI_ARGS=" + want}}[want != ""], env); diff != "" {
			t.Error(diff)
		}
	}
}
