package metrics

import (
	"fmt"
	"strings"
	"testing"
)

func TestTooManyInterfacesAreNotCounted(t *testing.T) {
	text := "Inter-| Receive\n face |bytes\n"
	for i := range 2 * MostInterfaces {
		text += fmt.Sprintf("  dummy%d:%s\n", i, strings.Repeat(" 1", columns))
	}
	all := ParseInterfaces(text+"  eth0:"+strings.Repeat(" 2", columns)+"\n", "eth0")
	if n := len(all); n != MostInterfaces+1 || all[0].Name != "dummy0" || all[n-1].Name != "eth0" || all[n-1].Columns[RxBytes] != 2 {
		t.Errorf("%d interfaces: %v", n, all)
	}
}
