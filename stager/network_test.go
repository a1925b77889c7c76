package main

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"kurma.io/stager/tests/clause"
)

// The isolator of the pod, or of its only app, limits the network of a started pod.
func TestNetworkOfALaunchedPodIsLimited(t *testing.T) {
	clause.Covers(t, "C-NBW-01")
	isolator := isolatorList("resource/network-bandwidth", rate(1<<20))
	for name, isolators := range map[string][2]any{"pod": {isolator, nil}, "app": {nil, isolator}, "none": {}} {
		t.Run(name, func(t *testing.T) {
			app := testApp{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "isolators": isolators[1]}}
			p := launch(t, []testApp{app}, withPod("isolators", isolators[0]), withConfig("strictIsolators", true))
			p.isReady()
			if err := p.inNetwork(func() error { return unlimited("lo") }); err != nil {
				t.Error(err)
			}
			for _, link := range []string{"eth0", "eth1"} {
				if err := p.inNetwork(func() error { return unlimited(link) }); (err == nil) != (name == "none") {
					t.Errorf("%s: %v", link, err)
				}
			}
		})
	}
}

func unlimited(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	list, err := netlink.QdiscList(link)
	for _, q := range list {
		if q.Type() == "tbf" || q.Type() == "ingress" {
			return fmt.Errorf("%s has a %s queue", name, q.Type())
		}
	}
	return err
}
