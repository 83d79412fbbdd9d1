#!/usr/bin/env bash
# Removes data/Training Batch 1 and data/Training Batch 2, and nothing else.
# Usage, from the project's folder: bash data_preparation/delete_extracted_scans_data.sh

set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lits_folder.sh"

for folder in "$data/Training Batch 1" "$data/Training Batch 2"; do
    if [[ -e "$folder" || -L "$folder" ]]; then
        rm -rf -- "$folder" # of a symbolic link, the link alone
        echo "Deleted $folder"
    fi
done
