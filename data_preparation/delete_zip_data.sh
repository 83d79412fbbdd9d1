#!/usr/bin/env bash
# Removes the LiTS zip files, data/Training_Batch1.zip and data/Training_Batch2.zip, nothing else.
# Usage, from the project's folder: bash data_preparation/delete_zip_data.sh

set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lits_folder.sh"

for batch in 1 2; do
    while IFS= read -r -d '' zip; do
        rm -f -- "$zip"
        echo "Deleted $zip"
    done < <(zips_of_batch "$batch")
done
