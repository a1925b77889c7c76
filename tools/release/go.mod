module kurma.io/stager/tools/release

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.11.0
	github.com/google/licensecheck v0.3.1
	golang.org/x/mod v0.36.0
)
