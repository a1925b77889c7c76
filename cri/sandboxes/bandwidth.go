package sandboxes

import (
	"fmt"
	"math"
	"strings"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/networks"

	"github.com/appc/spec/schema/types/resource"
)

// Annotations of a pod that limit its network, as quantities of bits per second (Kubernetes, Network Plugins, Support
// traffic shaping). CNI's plugin bandwidth carries them out.
const (
	ingressAnnotation = "kubernetes.io/ingress-bandwidth"
	egressAnnotation  = "kubernetes.io/egress-bandwidth"
)

// The rates that Kubernetes takes, and the least burst: ten frames.
const (
	minRate  = 1_000
	maxRate  = 1_000_000_000_000_000
	minBurst = 10 * 1500 * 8
)

// CheckBandwidth returns an error that names an annotation of the record which limits the network to no rate.
func CheckBandwidth(r records.Sandbox) error {
	_, err := bandwidthOf(r)
	return err
}

// bandwidthOf returns the limits of a sandbox's network; nil for none.
func bandwidthOf(r records.Sandbox) (*networks.Bandwidth, error) {
	ingress, err := rateOf(r, ingressAnnotation)
	if err != nil {
		return nil, err
	}
	egress, err := rateOf(r, egressAnnotation)
	if err != nil || ingress == 0 && egress == 0 {
		return nil, err
	}
	return &networks.Bandwidth{
		IngressRate: ingress, IngressBurst: burstOf(ingress), EgressRate: egress, EgressBurst: burstOf(egress),
	}, nil
}

func rateOf(r records.Sandbox, annotation string) (uint64, error) {
	text, ok := r.Annotations[annotation]
	if !ok {
		return 0, nil
	}
	if isBounded(text) {
		rate, err := resource.ParseQuantity(text)
		if err == nil && rate.Value() >= minRate && rate.Value() <= maxRate {
			return uint64(rate.Value()), nil
		}
	}
	return 0, fmt.Errorf("annotation %s: %q: want a quantity of bits per second from 1k to 1P", annotation, text)
}

// isBounded reports whether a quantity takes no time to parse: the package computes as many digits as the text and its
// exponent say, for which some bytes of a pod's author can take hours.
func isBounded(text string) bool {
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e") // or what follows the suffixes E and Ei
	return len(text) <= len("1000000000000000.000000000Ki") && len(exponent) <= len("+99")
}

// burstOf returns what may pass at once: the bits of a tenth of a second. The plugin takes no more than 32 bits.
func burstOf(rate uint64) uint64 {
	if rate == 0 {
		return 0
	}
	return max(minBurst, min(rate/10, math.MaxUint32))
}
