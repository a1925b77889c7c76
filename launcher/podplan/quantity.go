package podplan

import (
	"errors"
	"regexp"
	"strings"
)

// Memory returns a number of bytes, not 0, as appc writes it. The suffixes are podman's, which are powers of 1024, or
// appc's.
func Memory(text string) (string, error) {
	match := regexp.MustCompile(`^([0-9]+)(b|k|m|g|t|K|M|G|T|Ki|Mi|Gi|Ti)?$`).FindStringSubmatch(text)
	if match == nil || strings.Trim(match[1], "0") == "" {
		return "", errors.New("want a number of bytes such as 512m or 512Mi")
	}
	switch suffix := match[2]; suffix {
	case "b":
		return match[1], nil
	case "k", "m", "g", "t":
		return match[1] + strings.ToUpper(suffix) + "i", nil
	}
	return text, nil
}

// CPUs returns a number of CPUs, not 0, as appc writes it.
func CPUs(text string) (string, error) {
	if !regexp.MustCompile(`^([0-9]+(\.[0-9]{1,3})?|[0-9]+m)$`).MatchString(text) || strings.Trim(text, "0.m") == "" {
		return "", errors.New("want a number of CPUs such as 1.5")
	}
	return text, nil
}
