package networks

import "testing"

func TestResolvConf(t *testing.T) {
	const host = "# the host's\nnameserver 192.0.2.1\nnameserver\t192.0.2.2 # second\nsearch host.example\n"
	full := &DNS{Nameservers: []string{"10.0.0.1", "fd00::1"}, Domain: "a", Search: []string{"b", "c"}, Options: []string{"ndots:2"}}
	servers, search := &DNS{Nameservers: []string{"9.9.9.9"}}, &DNS{Search: []string{"corp.example"}}
	for _, tt := range []struct {
		name      string
		own, nets []*DNS
		want      string
	}{
		{"nobody's", []*DNS{nil}, []*DNS{nil, {}}, ""},
		{"a network's", nil, []*DNS{nil, full, servers}, "nameserver 10.0.0.1\nnameserver fd00::1\ndomain a\nsearch b c\noptions ndots:2\n"},
		{"the pod's own servers", []*DNS{nil, servers}, []*DNS{full}, "nameserver 9.9.9.9\n"},
		{"the pod's own search", []*DNS{search}, []*DNS{full}, "nameserver 10.0.0.1\nnameserver fd00::1\nsearch corp.example\n"},
		{"the pod's own servers and search", []*DNS{servers, search}, []*DNS{full}, "nameserver 9.9.9.9\nsearch corp.example\n"},
		{"two networks'", nil, []*DNS{search, full}, "nameserver 10.0.0.1\nnameserver fd00::1\nsearch corp.example\n"},
		{"the pod's own search, and the host's", []*DNS{search}, nil, "nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch corp.example\n"},
		{"a network's options, and the host's", nil, []*DNS{{Options: []string{"ndots:2"}}}, "nameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:2\n"},
	} {
		var attachments []Attachment
		var results []Result
		for _, d := range tt.own {
			attachments = append(attachments, Attachment{DNS: d})
		}
		for _, d := range tt.nets {
			results = append(results, Result{DNS: d})
		}
		names := Names(attachments, results, host)
		if got := names.ResolvConf(); got != tt.want || (names == nil) != (tt.want == "") {
			t.Errorf("%s:\n%swant\n%s", tt.name, got, tt.want)
		}
	}
}
